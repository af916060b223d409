package redistest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A shim is a small library that is loaded before the C library of a server and replaces a part of
// it. It shares a file in the server's directory with the test.
type shim struct {
	library  string
	variable string // of the environment, with the path of the file
	file     string
	size     int // of the file at the first start
}

// shimEnv returns the environment that makes the process load its shims.
func (s *Server) shimEnv() ([]string, error) {
	var libraries, env []string
	for _, shim := range s.shims {
		path := filepath.Join(s.dir, shim.file)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // the first start
			if err := os.WriteFile(path, make([]byte, shim.size), 0o600); err != nil {
				return nil, err
			}
		}
		libraries, env = append(libraries, shim.library), append(env, shim.variable+"="+path)
	}
	if len(libraries) > 0 {
		env = append(env, "LD_PRELOAD="+strings.Join(libraries, ":"))
	}
	return env, nil
}

// buildShim compiles a library in dir and returns its path.
func buildShim(tb testing.TB, dir, name string, source []byte) string {
	tb.Helper()
	_ = os.Getenv(VersionsEnv)
	compiler, err := exec.LookPath("cc")
	if err != nil {
		Missing(tb, "there is no C compiler (cc) to build the library for the %s of a server", name)
	}
	file, library := filepath.Join(dir, name+".c"), filepath.Join(dir, name+".so")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", library, file, "-ldl").CombinedOutput(); err != nil {
		tb.Fatalf("redistest: %v\n%s", err, out)
	}
	return library
}
