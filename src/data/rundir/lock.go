package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"halognn/src/base/flock"
	"halognn/src/base/mem"
)

// ErrInUse says that another job works on this run directory.
var ErrInUse = errors.New("the run directory is in use")

// lockBeat is the time between two beats of a process that holds a lock. lockWait is how long
// another process watches for a beat. Tests make both short.
var (
	lockBeat = 5 * time.Second
	lockWait = 20 * time.Second
)

// Lock is a file that keeps other jobs out of a run directory:
//
//	00000000000000000042 {"host":"n17","pid":4711,...}      beats, who
//
// Only one process can create this file. It is used because on some filesystems flock does not
// reach other nodes. A process that dies leaves the file behind. On the same node, the process
// number shows at once whether the holder lives; from other nodes, its beats show it.
//
// The beats of a Lock are not those of a Heartbeat. They show other jobs that a process exists,
// from before it reads the first file and however long it waits. The beats of a Heartbeat show the
// ranks of the same job whether a rank makes progress in training.
type Lock struct {
	path string
	who  []byte
	quit chan struct{}
	done sync.WaitGroup
}

// holder identifies the process that holds a lock.
type holder struct {
	flock.Process
	Job   string    `json:"job,omitempty"`
	Since time.Time `json:"since"`
}

const countBytes = 21 // length of the number of beats, and a blank

// LockRun locks a run directory, which must exist. It returns ErrInUse if a living process holds
// the lock. Before it watches that process for some time, it calls the function `wait`.
func LockRun(dir string, wait func(why string)) (*Lock, error) {
	l := &Lock{path: filepath.Join(dir, LockFile), quit: make(chan struct{})}
	var err error
	if l.who, err = json.Marshal(thisProcess()); err != nil {
		return nil, err
	}
	for {
		err := l.create()
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("locking the run directory: %w", err)
		}
		text, err := mem.ReadFile(l.path)
		if errors.Is(err, fs.ErrNotExist) { // the lock was released in the meantime
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("locking the run directory: %w", err)
		}
		if l.alive(text, wait) {
			return nil, fmt.Errorf("%s: %w by %s, and two jobs must not work on one run: wait "+
				"until that job ends or, if there is no such job, remove %s",
				dir, ErrInUse, describeHolder(text), l.path)
		}
		// Another process may remove and replace the lock at the same moment. The process that
		// loses its lock in this way finds out by Held.
		if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("locking the run directory: %w", err)
		}
	}
	l.done.Add(1)
	go l.beat()
	return l, nil
}

func (l *Lock) create() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(l.text(0))
	// a lock file that stays would keep out the next job
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(l.path))
	}
	return err
}

func (l *Lock) text(beats uint64) []byte { return fmt.Appendf(nil, "%020d %s\n", beats, l.who) }

// overwrite replaces bytes of an existing file. It opens and closes the file each time, because NFS
// guarantees only that an open sees what was written before an earlier close.
func overwrite(path string, data []byte, at int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, at)
	return errors.Join(err, f.Close())
}

// beat increases the number in the file while this process holds the lock.
func (l *Lock) beat() {
	defer l.done.Done()
	tick := time.NewTicker(lockBeat)
	defer tick.Stop()
	for beats := uint64(1); ; beats++ {
		select {
		case <-l.quit:
			return
		case <-tick.C:
		}
		if errors.Is(l.Held(), ErrInUse) {
			return
		}
		_ = overwrite(l.path, l.text(beats)[:countBytes], 0) // a lost beat does no harm
	}
}

// Held returns ErrInUse if this process no longer holds the lock, and another error if it cannot
// find out. A nil Lock counts as held.
func (l *Lock) Held() error {
	if l == nil {
		return nil
	}
	text, err := mem.ReadFile(l.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the lock of the run directory: %w", err)
	}
	if len(text) > countBytes && bytes.Equal(bytes.TrimSpace(text[countBytes:]), l.who) {
		return nil
	}
	return fmt.Errorf("%s is not this job's lock any more (another job has taken the run over, "+
		"or the file was removed), so this job writes nothing more: %w", l.path, ErrInUse)
}

// Release unlocks the run directory. It does nothing for a nil Lock.
func (l *Lock) Release() error {
	if l == nil {
		return nil
	}
	close(l.quit)
	l.done.Wait()
	if err := l.Held(); errors.Is(err, ErrInUse) { // another process holds the lock now
		return nil
	} else if err != nil {
		return err
	}
	return os.Remove(l.path)
}

// alive reports whether the process that the lock's text names still lives.
func (l *Lock) alive(text []byte, wait func(why string)) bool {
	h, err := holderOf(text)
	if err == nil {
		if alive, known := h.Lives(); known {
			return alive
		}
	}
	wait(fmt.Sprintf("%s is held by %s; watching for %v whether that process is alive",
		l.path, describeHolder(text), lockWait))
	for end := time.Now().Add(lockWait); time.Now().Before(end); time.Sleep(lockBeat / 5) {
		if now, err := mem.ReadFile(l.path); err == nil && !bytes.Equal(now, text) {
			return true
		}
	}
	return false
}

func holderOf(text []byte) (h holder, err error) {
	if len(text) <= countBytes {
		return h, fmt.Errorf("%d bytes", len(text))
	}
	return h, json.Unmarshal(text[countBytes:], &h)
}

func describeHolder(text []byte) string {
	h, err := holderOf(text)
	if err != nil {
		return "an unknown process"
	}
	job := ""
	if h.Job != "" {
		job = "job " + h.Job + ", "
	}
	since := h.Since.Format(time.DateTime)
	return fmt.Sprintf("%sprocess %d on %s since %s", job, h.PID, h.Host, since)
}

// thisProcess describes this process. If its Space, in which process numbers have a meaning, cannot
// be read, other processes watch the beats of this process instead of its number.
func thisProcess() holder {
	return holder{Process: flock.ThisProcess(), Since: processBegan, Job: BatchJob()}
}

// BatchJob returns the id of the batch job that this process belongs to, or "" if there is none.
func BatchJob() string {
	for _, name := range []string{"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"} {
		if id := os.Getenv(name); id != "" {
			return id
		}
	}
	return ""
}

var processBegan = time.Now()
