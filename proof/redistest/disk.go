package redistest

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// diskSource is a shim.
//
//go:embed disk/disk.c
var diskSource []byte

// WithVolatileDisk lets a test cut the power of a server with [Server.CutPower]. It needs a C
// compiler; without one it skips or fails as [Require] does.
func WithVolatileDisk() Option { return func(c *config) { c.volatile = true } }

// CutPower ends the process with SIGKILL, as [Server.Kill] does. It also removes from the disk all
// that was written and not synced, which a kill leaves in the page cache. It returns how many bytes
// these were. Restart brings the server back. It is for servers started with [WithVolatileDisk].
//
//   - A file keeps its length at the beginning of the last fsync or fdatasync that succeeded. A
//     file that was never synced is empty. This is the worst case: a real disk may have written
//     some of the rest, or all.
//   - Names are safe: a file that was created, renamed, removed or shortened stays so, whether or
//     not its directory was synced.
//   - Not modelled: bytes that are overwritten, sectors that are written in part, disks that
//     acknowledge a sync too early, and forked children of the server, which run on.
func (s *Server) CutPower() (lost int64) {
	s.tb.Helper()
	s.Kill()
	lost, err := s.forget()
	if err != nil {
		s.tb.Errorf("redistest: CutPower of %s: %v", s.Addr(), err)
	}
	return lost
}

// dataDir returns the directory of the server's files. The files of the test bed are beside it and
// so not on the volatile disk.
func (s *Server) dataDir() (string, error) {
	if !s.volatile {
		return s.dir, nil
	}
	dir := filepath.Join(s.dir, "disk")
	return dir, os.MkdirAll(dir, 0o700)
}

const journalFile = "synced"

// forget shortens each file to the part that was synced.
func (s *Server) forget() (lost int64, err error) {
	if !s.volatile {
		return 0, errors.New("it was not started WithVolatileDisk")
	}
	journal, err := os.ReadFile(filepath.Join(s.dir, journalFile))
	if err != nil {
		return 0, err
	}
	lengths, err := syncedLengths(journal)
	if err != nil {
		return 0, err
	}
	dir, err := s.dataDir()
	if err != nil {
		return 0, err
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := entry.Info()
		if err != nil {
			return err
		}
		inode, err := inodeOf(file)
		if err != nil {
			return err
		}
		if length := lengths[inode]; length < file.Size() {
			lost += file.Size() - length
			return os.Truncate(path, length)
		}
		return nil
	})
	return lost, err
}

// The kinds of record in the journal, as in disk.c.
const (
	wasSynced    = 1
	wasShortened = 2
	wasRemoved   = 3
)

// syncedLengths reads from the journal how many bytes of each file are safe, by its inode.
func syncedLengths(journal []byte) (map[uint64]int64, error) {
	lengths := map[uint64]int64{}
	for r := bytes.NewReader(journal); ; {
		var record struct {
			What   int64
			Inode  uint64
			Length int64
		}
		switch err := binary.Read(r, binary.NativeEndian, &record); {
		case errors.Is(err, io.EOF):
			return lengths, nil
		case err != nil:
			return nil, err
		}
		switch old := lengths[record.Inode]; record.What {
		case wasSynced:
			// threads may write their records in another order
			lengths[record.Inode] = max(old, record.Length)
		case wasShortened:
			lengths[record.Inode] = min(old, record.Length)
		case wasRemoved:
			delete(lengths, record.Inode)
		default:
			return nil, fmt.Errorf("a record of the disk says %d", record.What)
		}
	}
}
