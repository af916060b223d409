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

// WithVolatileDisk lets a test cut the power of a server with [Server.CutPower]. It needs a C compiler, and skips or fails like
// [Require] without one.
func WithVolatileDisk() Option { return func(c *config) { c.volatile = true } }

// CutPower ends the process with SIGKILL, as [Server.Kill] does, and takes from its disk what it had written and not yet synced,
// which a kill leaves in the page cache. It returns how many bytes that were. Restart brings the server back. It is for servers
// started with [WithVolatileDisk].
//
//   - A file ends where it ended when the last fsync or fdatasync that has succeeded began. One that was never synced is empty.
//     That is the worst of what may happen: a real disk may have written some of the rest, or all.
//   - Names are safe: a file that was created, renamed, removed or shortened stays so, whether its directory was synced or not.
//   - What is written over, sectors that are written in part, and a disk that says it has written and has not, are not
//     modelled; nor are children that the server has forked, which run on.
func (s *Server) CutPower() (lost int64) {
	s.tb.Helper()
	s.Kill()
	lost, err := s.forget()
	if err != nil {
		s.tb.Errorf("redistest: CutPower of %s: %v", s.Addr(), err)
	}
	return lost
}

// dataDir is where the server keeps its files. What a test bed keeps beside them is no part of a volatile disk.
func (s *Server) dataDir() (string, error) {
	if !s.volatile {
		return s.dir, nil
	}
	dir := filepath.Join(s.dir, "disk")
	return dir, os.MkdirAll(dir, 0o700)
}

const journalFile = "synced"

// forget shortens each file to what was synced of it.
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

// What a record of the journal tells, as in disk.c.
const (
	wasSynced    = 1
	wasShortened = 2
	wasRemoved   = 3
)

// syncedLengths tells from the journal how much of each file, by its inode, is safe.
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
			lengths[record.Inode] = max(old, record.Length) // threads may tell of theirs in another order
		case wasShortened:
			lengths[record.Inode] = min(old, record.Length)
		case wasRemoved:
			delete(lengths, record.Inode)
		default:
			return nil, fmt.Errorf("a record of the disk says %d", record.What)
		}
	}
}
