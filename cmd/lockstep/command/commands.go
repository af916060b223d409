package command

import (
	"context"
	"flag"
	"slices"
)

// A command is what the help, the man page, the completion and the parser know of a subcommand.
type command struct {
	name    string
	args    string // behind the name, for the help
	summary string
	text    string // paragraphs, each one line
	exits   []exit
	example []example

	atLeast, atMost int  // names
	dashes          bool // a command to run follows behind --

	// setup adds the flags of the command, and returns what runs it.
	setup func(c *cli, fs *flag.FlagSet) func(ctx context.Context, args []string) error
}

type exit struct {
	code string
	when string
}

type example struct{ line, says string }

func (c *cli) find(name string) *command {
	for _, cmd := range c.commands() {
		if cmd.name == name {
			return cmd
		}
	}
	return nil
}

// commands are all commands, in the order of the help.
func (c *cli) commands() []*command {
	all := []*command{
		runCommand(), listCommand(), inspectCommand(), watchCommand(), topCommand(), testCommand(),
		acquireCommand(), extendCommand(), releaseCommand(), doctorCommand(), installCommand(),
		serveCommand(), completionCommand(), versionCommand(), helpCommand(),
	}
	if c.program.Page == nil {
		all = slices.DeleteFunc(all, func(cmd *command) bool { return cmd.name == "serve" })
	}
	return all
}

// The exit codes of commands that only ask the store.
var asking = []exit{
	{"0", "the store has answered"},
	{"64", "bad flags, or no store is given"},
	{"69", "the store did not answer"},
	{"77", "refused: a missing permission, or a key of another type"},
}

func with(own []exit, others ...exit) []exit { return append(slices.Clone(others), own...) }
