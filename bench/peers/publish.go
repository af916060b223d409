package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// cases says what each case is, and has the marks for its results.
//
//go:embed cases.md
var cases []byte

// begin makes the page if there is none, before hours of work are done for it.
func begin(page string) error {
	if page == "" {
		return nil
	}
	if _, err := os.Stat(page); !os.IsNotExist(err) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(page), 0o755); err != nil {
		return err
	}
	return os.WriteFile(page, cases, 0o644)
}

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

// shown are the charts that a page shows.
var shown = regexp.MustCompile(`\]\((performance/[\w-]+\.svg)\)`)

// publishHeadlines puts the headlines between their marks, and the charts that the file shows, which
// lie beside page, beside it.
func publishHeadlines(file, text, page string) error {
	if err := publish(file, map[string]string{"headlines": text}); err != nil {
		return err
	}
	after, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, chart := range shown.FindAllSubmatch(after, -1) {
		svg, err := os.ReadFile(filepath.Join(filepath.Dir(page), string(chart[1])))
		if err != nil {
			return err
		}
		to := filepath.Join(filepath.Dir(file), string(chart[1]))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}
