package driver

import (
	"fmt"
	"strings"
)

// NameKeys returns err. If err is a NOPERM, it returns a copy whose text names the keys of the
// command: the server names at most the command.
func NameKeys(err error, args []any) error {
	reply, ok := err.(*ReplyError) //nolint:errorlint // what wraps one says more than it
	if !ok || reply.Code() != "NOPERM" {
		return err
	}
	own := *reply
	own.keys = keysOf(args)
	return &own
}

// keysOf are the keys of a script, or else of a command whose only key comes first.
func keysOf(args []any) (keys []string) {
	named := args[1:min(len(args), 2)]
	if args[0] == "EVALSHA" || args[0] == "EVAL" {
		n, _ := args[2].(int)
		named = args[3 : 3+n]
	}
	for _, key := range named {
		keys = append(keys, fmt.Sprintf("%q", key))
	}
	return keys
}

// lacks says which permission to add. The server's text names a command, a key or a channel.
func (e *ReplyError) lacks() string {
	const listed = " (docs/security.md lists what each strategy needs; ACL LOG on the server says what it refused)"
	switch {
	case strings.Contains(e.Text, "channel"):
		return "; allow its user the channels of locks" + listed
	case strings.Contains(e.Text, " key") && len(e.keys) > 0:
		return "; allow its user to read and write " + strings.Join(e.keys, " and ") + listed
	case strings.Contains(e.Text, " key"):
		return "; allow its user to read and write the keys of locks" + listed
	case e.inScript():
		return "; allow its user the commands of this script" + listed
	}
	if option := e.without(); option != "" {
		return "; allow its user that command, or use " + option + listed
	}
	return "; allow its user that command" + listed
}
