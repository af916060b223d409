package redistest

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Version returns what the program is that Start runs, such as "Redis" and "7.0.15", or "Valkey" and
// "9.1.2". The program is the redis-server that comes first in PATH.
func Version() (server, version string, err error) {
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w", program, err)
	}
	words := strings.Fields(string(out))
	for _, word := range words {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			return words[0], v, nil
		}
	}
	return "", "", fmt.Errorf("%s --version says %q, without a version", program, out)
}

// Major returns the first number of the version of s: 7 for Redis 7.0.15.
func (s *Server) Major() int {
	s.tb.Helper()
	_, version, err := Version()
	if err != nil {
		s.tb.Fatal(err)
	}
	first, _, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		s.tb.Fatalf("redistest: version %q has no first number", version)
	}
	return major
}
