package command

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

const introduction = "lockstep runs a command under a distributed lock, and shows who holds which lock."

var storesText = []string{
	"The store is named by -store, by the file of -store-file, by LOCKSTEP_STORE, or by the file that LOCKSTEP_STORE_FILE names, in this order. There is no default: without a store every command ends with 64. Several URLs, with a space between them in LOCKSTEP_STORE, are the nodes of a quorum.",
	"A URL with a password is refused in -store, since everybody who can list processes sees arguments.",
	"Flags may stand before and behind names. A duration is written as 30s, 1m30s or 30 (seconds).",
}

func helpCommand() *command {
	return &command{
		name: "help", args: "[COMMAND]", summary: "show this help, or that of a command", atMost: 1,
		example: []example{{"lockstep help run", ""}, {"lockstep help -man | man -l -", "the manual page"}},
		exits:   []exit{{"0", "always, unless the command does not exist: 64"}},
		setup: func(c *cli, fs *flag.FlagSet) func(context.Context, []string) error {
			man := fs.Bool("man", false, "print the manual page for man(1)")
			return func(_ context.Context, args []string) error {
				var cmd *command
				if len(args) > 0 {
					if cmd = c.find(args[0]); cmd == nil {
						return usage("there is no command %q: `lockstep help` lists them", args[0])
					}
				}
				if *man {
					c.man(c.out)
					return nil
				}
				c.help(cmd)
				return nil
			}
		},
	}
}

// flags are those of a command, without those that all commands have, or the latter.
func (c *cli) flags(cmd *command) (own []*flag.Flag) {
	common, all := newFlags(""), newFlags("")
	(&cli{maxTTL: defaultMaxTTL, timeout: defaultTimeout}).common(common)
	if cmd == nil {
		all = common
	} else {
		cmd.setup(&cli{program: c.program}, all)
	}
	all.VisitAll(func(f *flag.Flag) { own = append(own, f) })
	return own
}

// help writes the help of a command, or of all, to standard output.
func (c *cli) help(cmd *command) {
	w := c.out
	if cmd == nil {
		put(w, "%s\n\n  lockstep [FLAGS] COMMAND [FLAGS] [NAME]\n\nCommands:\n", introduction)
		for _, cmd := range c.commands() {
			put(w, "  %-11s %s\n", cmd.name, cmd.summary)
		}
		put(w, "\nStores:\n")
		for _, f := range c.program.Stores {
			for _, url := range f.Examples {
				put(w, "  %s\n", url)
			}
		}
		for _, text := range storesText {
			put(w, "\n%s\n", wrap(text, "", 80))
		}
		put(w, "\nFlags of all commands:\n")
		writeFlags(w, c.flags(nil))
		put(w, "\n`lockstep help COMMAND` shows the flags of a command, its exit codes and examples.\n")
		return
	}
	put(w, "lockstep %s: %s\n\n  lockstep %s\n", cmd.name, cmd.summary, strings.TrimSpace(cmd.name+" "+cmd.args))
	for _, text := range paragraphs(cmd.text) {
		put(w, "\n%s\n", wrap(text, "", 80))
	}
	put(w, "\nExamples:\n")
	for _, e := range cmd.example {
		if e.says != "" {
			put(w, "%s\n", wrap("# "+e.says, "  ", 80))
		}
		put(w, "  %s\n", e.line)
	}
	if own := c.flags(cmd); len(own) > 0 {
		put(w, "\nFlags:\n")
		writeFlags(w, own)
	}
	put(w, "\nExit codes:\n")
	for _, e := range cmd.exits {
		put(w, "  %-6s %s\n", e.code, strings.TrimLeft(wrap(e.when, "         ", 80), " "))
	}
	put(w, "\nThe stores and the flags of all commands: `lockstep help`.\n")
}

func writeFlags(w io.Writer, flags []*flag.Flag) {
	for _, f := range flags {
		name, says := explained(f)
		put(w, "  -%s\n%s\n", strings.TrimSpace(f.Name+" "+strings.ToUpper(name)), wrap(says, "      ", 80))
	}
}

// explained is the word for the value of a flag, and what the flag does.
func explained(f *flag.Flag) (value, says string) {
	value, says = flag.UnquoteUsage(f)
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
		says += " (default " + f.DefValue + ")"
	}
	return value, says
}

func paragraphs(text string) (all []string) {
	for _, p := range strings.Split(text, "\n\n") {
		if p = strings.Join(strings.Fields(p), " "); p != "" {
			all = append(all, p)
		}
	}
	return all
}

// wrap breaks text into lines of at most width bytes.
func wrap(text, indent string, width int) string {
	var out strings.Builder
	line := indent
	for i, word := range strings.Fields(text) {
		if i > 0 && len(line)+1+len(word) > width {
			out.WriteString(line + "\n")
			line = indent
		}
		if strings.TrimSpace(line) != "" {
			line += " "
		}
		line += word
	}
	return out.String() + line
}

// man writes the manual page.
func (c *cli) man(w io.Writer) {
	line := func(format string, args ...any) { put(w, "%s\n", fmt.Sprintf(format, args...)) }
	text := func(t string) { line("%s", roff(t)) }
	line(`.TH LOCKSTEP 1 "" "lockstep" "User Commands"`)
	line(".ad l\n.nh") // URLs and flags are not broken
	line(".SH NAME\nlockstep \\- run a command under a distributed lock; show and free locks")
	line(".SH SYNOPSIS")
	for _, cmd := range c.commands() {
		line(".B lockstep %s\n\\&%s\n.br", cmd.name, roff(cmd.args))
	}
	line(".SH DESCRIPTION")
	text(introduction)
	for _, t := range storesText {
		line(".PP")
		text(t)
	}
	line(".SH STORES\n.nf")
	for _, f := range c.program.Stores {
		for _, url := range f.Examples {
			text(url)
		}
	}
	line(".fi")
	manFlags := func(flags []*flag.Flag) {
		for _, f := range flags {
			name, says := explained(f)
			line(".TP\n.BI \\-%s \" %s\"", roff(f.Name), strings.ToUpper(name))
			text(says)
		}
	}
	line(".SH OPTIONS")
	manFlags(c.flags(nil))
	for _, cmd := range c.commands() {
		line(".SH LOCKSTEP %s", strings.ToUpper(cmd.name))
		text(strings.ToUpper(cmd.summary[:1]) + cmd.summary[1:] + ".")
		for _, t := range paragraphs(cmd.text) {
			line(".PP")
			text(t)
		}
		manFlags(c.flags(cmd))
		line(".SS Exit codes")
		for _, e := range cmd.exits {
			line(".TP\n.B %s", roff(e.code))
			text(e.when)
		}
		line(".SS Examples")
		for _, e := range cmd.example {
			line(".PP")
			if e.says != "" {
				text(e.says + ":")
				line(".br")
			}
			line(".B %s", roff(e.line))
		}
	}
}

// roff escapes what troff would read as its own.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "≤", `\(<=`, "≥", `\(>=`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

func completionCommand() *command {
	return &command{
		name: "completion", args: "bash|zsh|fish", summary: "print a script that completes commands and flags", atLeast: 1, atMost: 1,
		example: []example{
			{"lockstep completion bash > /etc/bash_completion.d/lockstep", ""},
			{"lockstep completion zsh > ~/.zfunc/_lockstep", "with fpath+=(~/.zfunc) in .zshrc"},
			{"lockstep completion fish > ~/.config/fish/completions/lockstep.fish", ""},
		},
		exits: []exit{{"0", "the script is printed"}, {"64", "the shell is not known"}},
		setup: func(c *cli, _ *flag.FlagSet) func(context.Context, []string) error {
			return func(_ context.Context, args []string) error {
				write, ok := map[string]func(io.Writer, []*command){"bash": c.bash, "zsh": c.zsh, "fish": c.fish}[args[0]]
				if !ok {
					return usage("there is no script for %q: choose bash, zsh or fish", args[0])
				}
				write(c.out, c.commands())
				return nil
			}
		},
	}
}

// words are the flags that may follow a command.
func (c *cli) words(cmd *command) string {
	var all []string
	for _, f := range append(c.flags(cmd), c.flags(nil)...) {
		all = append(all, "-"+f.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func names(all []*command) string {
	var names []string
	for _, cmd := range all {
		names = append(names, cmd.name)
	}
	return strings.Join(names, " ")
}

func (c *cli) bash(w io.Writer, all []*command) {
	put(w, `_lockstep() {
  local word command= words
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case " %s " in *" $word "*) command=$word; break ;; esac
  done
  case "$command" in
`, names(all))
	for _, cmd := range all {
		put(w, "    %s) words='%s' ;;\n", cmd.name, c.words(cmd))
	}
	put(w, `    *) words='%s %s' ;;
  esac
  [ "$command" != help ] || words="$words %s"
  [ "$command" != completion ] || words="$words bash zsh fish"
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _lockstep lockstep
`, names(all), c.words(nil), names(all))
}

func (c *cli) zsh(w io.Writer, all []*command) {
	put(w, "#compdef lockstep\nautoload -U +X bashcompinit && bashcompinit\n")
	c.bash(w, all)
}

func (c *cli) fish(w io.Writer, all []*command) {
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `\'`) + "'" }
	for _, cmd := range all {
		put(w, "complete -c lockstep -n __fish_use_subcommand -f -a %s -d %s\n", cmd.name, quote(cmd.summary))
		for _, f := range c.flags(cmd) {
			_, says := flag.UnquoteUsage(f)
			put(w, "complete -c lockstep -n '__fish_seen_subcommand_from %s' -o %s -d %s\n", cmd.name, f.Name, quote(says))
		}
	}
	for _, f := range c.flags(nil) {
		_, says := flag.UnquoteUsage(f)
		put(w, "complete -c lockstep -o %s -d %s\n", f.Name, quote(says))
	}
	put(w, "complete -c lockstep -n '__fish_seen_subcommand_from help' -f -a '%s'\n", names(all))
	put(w, "complete -c lockstep -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n")
}
