package stores

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
)

// tlsOf reads the parameters ca, cert and key, which name files in the form PEM, and takes them out of q:
// the client libraries do not know them. It is nil if there is none. Without ca the certificates of the
// system are used.
func tlsOf(q url.Values) (*tls.Config, error) {
	ca, cert, key := q.Get("ca"), q.Get("cert"), q.Get("key")
	for _, name := range []string{"ca", "cert", "key"} {
		q.Del(name)
	}
	switch {
	case ca == "" && cert == "" && key == "":
		return nil, nil
	case (cert == "") != (key == ""):
		return nil, errors.New("cert and key go together: give both files")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca: there is no certificate in %s", ca)
		}
	}
	if cert != "" {
		own, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// withFiles adds the files to what a client library has made of the URL; nil: its scheme has no TLS.
func withFiles(config, files *tls.Config) error {
	switch {
	case files == nil:
		return nil
	case config == nil:
		return errNoTLS
	}
	config.RootCAs, config.Certificates = files.RootCAs, files.Certificates
	return nil
}

var errNoTLS = errors.New("ca, cert and key are for the schemes with TLS: rediss, rediss+cluster, rediss+sentinel, nats+tls, etcds, postgres and mysql")

// isOff reads a parameter that turns off what is on by default, and takes it out of q.
func isOff(q url.Values, name string) (bool, error) {
	value := q.Get(name)
	q.Del(name)
	if value != "" && value != "off" && value != "on" {
		return false, fmt.Errorf("%s=%s is not possible: use on or off", name, value)
	}
	return value == "off", nil
}
