package main

import (
	"bytes"
	"fmt"
	"os"
)

// marks enclose a part of the page: the run, or a case.
func marks(part string) (begin, end []byte) {
	return []byte(fmt.Sprintf("<!-- bench-peers: %s, written by make bench-peers -->\n", part)),
		[]byte(fmt.Sprintf("<!-- end of bench-peers: %s -->\n", part))
}

// publish replaces the text between the marks of the parts. The rest of the file stays as it is.
func publish(file string, parts map[string]string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for part, text := range parts {
		begin, end := marks(part)
		before, rest, found := bytes.Cut(page, begin)
		_, after, closed := bytes.Cut(rest, end)
		if !found || !closed {
			return fmt.Errorf("%s has no marks for %q", file, part)
		}
		page = bytes.Join([][]byte{before, begin, []byte(text), end, after}, nil)
	}
	return os.WriteFile(file, page, 0o644)
}
