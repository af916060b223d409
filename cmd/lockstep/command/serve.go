package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

func serveCommand() *command {
	return &command{
		name: "serve", args: "[FLAGS]", summary: "show the locks of a store on a page",
		text: `The page has no login. It listens on this machine only, unless -listen says otherwise; then put a proxy with a
login in front of it. On this machine it answers to addresses and to localhost only: any other name may be one that a
page of somebody else has pointed here, to read the locks by the browser of its visitor. Name the addresses of a proxy
by -origin. With -allow-release it listens on this machine only. The page shows the findings of ` + "`lockstep doctor`" + ` on the
store, but makes no rehearsal. Metrics for Prometheus are below it at /metrics; of a quorum, at /1/metrics and so on.`,
		example: []example{{"lockstep serve -prefix invoice/", "the page is at http://127.0.0.1:7007"}},
		exits: []exit{
			{"0", "it was ended by INT or TERM"}, asking[1], {"69", "the store did not answer, or the page can't listen at the address"}, asking[3],
		},
		setup: func(c *cli, fs *flag.FlagSet) func(context.Context, []string) error {
			listen := fs.String("listen", "127.0.0.1:7007", "`address` of the page")
			prefix := fs.String("prefix", "", "show the locks that begin with `text`; Redis needs it, since a key alone does not tell a lock from other data")
			origins := fs.String("origin", "", "where a proxy shows the page (`origins`), such as https://locks.example.com; several with commas between them")
			allow := fs.Bool("allow-release", false, "those who see the page may release locks by force")
			return func(ctx context.Context, _ []string) error {
				ctx, stop := signal.NotifyContext(ctx, os.Interrupt, terminate)
				defer stop()
				stores, err := c.open(ctx, 0)
				if err != nil {
					return err
				}
				defer shut(stores)
				if err := c.canList(ctx, stores, *prefix); err != nil {
					return err
				}
				page := Page{Prefix: *prefix, AllowRelease: *allow, By: operator(), Origins: fields(*origins)}
				hosts, err := hostsOf(page.Origins)
				if err != nil {
					return err
				}
				for _, s := range stores {
					page.Stores = append(page.Stores, *s)
				}
				handler, err := c.program.Page(page)
				if err != nil {
					return usage("%w", err)
				}
				return c.serve(ctx, *listen, *allow, hosts, handler)
			}
		},
	}
}

// canList tells at the start what the page could only tell later: that a store does not answer, refuses, or
// needs a prefix.
func (c *cli) canList(ctx context.Context, stores []*Store, prefix string) error {
	errs := make([]error, len(stores))
	for i, s := range stores {
		if l, ok := s.Backend.(backends.Lister); ok {
			_, errs[i] = c.page(ctx, s, l, prefix, "")
		}
	}
	return c.enough(stores, errs)
}

// serve serves h until ctx ends.
func (c *cli) serve(ctx context.Context, address string, mayRelease bool, hosts []string, h http.Handler) error {
	if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
		return usage("-listen: %w", err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil { // the port is in use, or is not permitted
		return &exitError{exitUnavailable, fmt.Errorf("-listen: %w; choose another address or port", err)}
	}
	tcp, ok := l.Addr().(*net.TCPAddr)
	isLocal := ok && tcp.IP.IsLoopback()
	if mayRelease && !isLocal {
		drop(l)
		return usage("-allow-release lets everybody who reaches %s end every hold: listen on 127.0.0.1", l.Addr())
	}
	if isLocal {
		h = local(h, hosts)
	}
	c.say("http://%s", l.Addr())
	if !isLocal {
		c.say("everybody who reaches %s sees the page: it has no login", l.Addr())
	}
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with it
	}
	ended := make(chan struct{})
	go func() {
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if s.Shutdown(limited) != nil {
			_ = s.Close() // a browser that takes nothing is no error
		}
		close(ended)
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return &exitError{exitUnavailable, err}
	}
	<-ended
	return nil
}

// hostsOf are the hosts of origins, without ports: a proxy may pass them on or not.
func hostsOf(origins []string) (hosts []string, err error) {
	for _, text := range origins {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return nil, usage("-origin %s: give a scheme and a host, such as https://locks.example.com", text)
		}
		hosts = append(hosts, strings.ToLower(u.Hostname()))
	}
	return hosts, nil
}

// local answers requests for this machine by its address, and for the hosts. Any other name may be one
// that a page of somebody else has pointed at this machine (DNS rebinding): the browser of the operator
// would take that page for ours, and it would read all keys.
func local(h http.Handler, hosts []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		host = strings.ToLower(strings.Trim(strings.TrimSuffix(host, "."), "[]"))
		if host != "localhost" && net.ParseIP(host) == nil && !slices.Contains(hosts, host) {
			http.Error(w, "this page is for this machine only: open it by its address, such as http://127.0.0.1:7007; "+
				"behind a proxy, give its address by lockstep serve -origin", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
