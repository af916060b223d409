package lockertest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var secretSentences = []sentence{
	{"the token is in nothing that a request or a lease prints, logs or marshals", nil, func(x *fixture) {
		req := x.request(x.key("k"), x.long)
		g := x.granted(req)
		x.hides(req.Token, req, g.Lease)
		after, err := x.locker.Extend(x.Context(), g.Lease, x.long)
		if err != nil {
			x.Fatalf("Extend: %v", err)
		}
		x.hides(req.Token, after)
	}},
	{"the token is in no error", needs(faults, foreign), func(x *fixture) {
		ctx, key := x.Context(), x.key("k")
		g := x.grant(key, x.long)
		req := x.request(key, x.long)
		all := func() {
			_, err := x.locker.Acquire(ctx, req)
			x.hides(req.Token, err)
			x.hides(g.Token, err)
			for _, lease := range []contract.Lease{g.Lease, g.bare()} {
				_, err = x.locker.Extend(ctx, lease, x.long)
				x.hides(g.Token, err)
			}
			x.hides(g.Token, x.locker.Watch(ctx, key, "", func() {}))
		}
		all()
		for _, fault := range []backendtest.Fault{backendtest.Fail, backendtest.Permanent, backendtest.LoseReply} {
			x.beneath.Fault(All, fault)
			all()
			x.hides(g.Token, x.locker.Release(ctx, g.Lease))
		}
		x.beneath.Fault(All, nil)
		x.beneath.SetForeign(key)
		all()
		x.beneath.SetOther(key)
		all()
		for _, err := range []error{x.locker.Release(ctx, g.Lease), x.locker.Release(ctx, g.bare())} {
			if err == nil {
				x.Fatalf("Release of a lease that is lost: no error")
			}
			x.hides(g.Token, err)
		}
		for _, bad := range append(x.badRequests(), x.tooLong()) {
			if bad.Token != "" {
				_, err := x.locker.Acquire(ctx, bad.Request)
				x.hides(bad.Token, err)
			}
		}
	}},
	{"the token is in nothing that a held Lock or its context prints, logs or marshals", nil, func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(x.long)), x.key("k"))
		x.hides(l.Lease().Token, l, l.Context(), l.Lease())
	}},
}

// hides checks that the token is in no usual text of the values.
func (x *fixture) hides(token string, values ...any) {
	x.Helper()
	for _, v := range values {
		field := struct{ Field any }{v}
		ways := map[string]string{}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			ways[verb] = fmt.Sprintf(verb+" "+verb+" "+verb, v, &v, field)
		}
		var text strings.Builder
		slog.New(slog.NewTextHandler(&text, nil)).Info("value", "v", v)
		slog.New(slog.NewJSONHandler(&text, nil)).Info("value", "v", v)
		ways["slog"] = text.String()
		marshalled, _ := json.Marshal(field) // some values have no JSON
		ways["JSON"] = string(marshalled)
		for way, text := range ways {
			if strings.Contains(text, token) || strings.Contains(text, fmt.Sprintf("%x", token)) {
				x.Errorf("%s of a %T shows the token", way, v)
			}
		}
	}
}
