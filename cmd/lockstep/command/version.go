package command

import (
	"context"
	"flag"
	"runtime"
	"runtime/debug"
)

// built is what lockstep version prints with -json.
type built struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // files differed from the revision
	Go       string `json:"go"`
	System   string `json:"system"`
}

func versionCommand() *command {
	return &command{
		name: "version", summary: "print the version of this program",
		example: []example{{"lockstep version", ""}, {"lockstep version -json", ""}},
		exits:   []exit{{"0", "always"}},
		setup: func(c *cli, _ *flag.FlagSet) func(context.Context, []string) error {
			return func(context.Context, []string) error {
				info, ok := debug.ReadBuildInfo()
				if !ok {
					info = &debug.BuildInfo{}
				}
				b := builtFrom(info)
				if c.json {
					return c.print(c.out, b)
				}
				put(c.out, "lockstep %s%s%s  %s  %s\n", b.Version, optional("  ", b.Revision), map[bool]string{true: ", modified"}[b.Modified], b.Go, b.System)
				return nil
			}
		},
	}
}

func builtFrom(info *debug.BuildInfo) built {
	b := built{Version: info.Main.Version, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
