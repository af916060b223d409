//go:build !unix

package redistest

import (
	"errors"
	"io/fs"
)

func inodeOf(fs.FileInfo) (uint64, error) { return 0, errors.ErrUnsupported }
