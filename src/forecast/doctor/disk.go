package doctor

import (
	"os"
	"path/filepath"
	"time"

	"halognn/src/ranks/comm"
)

const fileBytes = 8 << 20

// tryDisk lets one rank of every node write and read a file in dir, and lets all ranks look for a
// file of rank 0. If this rank writes and reads for its node, `leader` is true. Collective.
func tryDisk(c comm.Comm, leader bool, dir string) (Disk, error) {
	var d Disk
	if leader {
		d = writeAndRead(dir)
	}
	token := ""
	if c.Rank() == 0 && d.Fault == "" {
		f, err := os.CreateTemp(dir, "halognn-doctor-*")
		if err == nil {
			token = f.Name()
			defer os.Remove(token)
			err = f.Close()
		}
		if err != nil {
			d.Fault = err.Error()
		}
	}
	name, err := comm.Bcast(c, filepath.Base(token))
	if err != nil {
		return d, err
	}
	if name != "." {
		_, err := os.Stat(filepath.Join(dir, name))
		d.Unseen = err != nil
	}
	// the barrier makes rank 0 remove the file only after all ranks have looked for it
	return d, c.StartBarrier().Wait()
}

// writeAndRead measures how fast this rank writes a file of fileBytes to dir and reads it back.
func writeAndRead(dir string) (d Disk) {
	fault := func(err error) Disk { d.Fault = err.Error(); return d }
	f, err := os.CreateTemp(dir, "halognn-doctor-*")
	if err != nil {
		return fault(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	data := make([]byte, fileBytes)
	for i := range data {
		data[i] = byte(i * i >> 7) // not all zeros, which some filesystems do not write
	}
	begin := time.Now()
	if _, err := f.Write(data); err != nil {
		return fault(err)
	}
	if err := f.Sync(); err != nil {
		return fault(err)
	}
	d.Write = fileBytes / time.Since(begin).Seconds()
	dropCache(f)
	begin = time.Now()
	if _, err := f.ReadAt(data, 0); err != nil {
		return fault(err)
	}
	d.Read = fileBytes / time.Since(begin).Seconds()
	return d
}
