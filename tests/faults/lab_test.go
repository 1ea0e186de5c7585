//go:build faults

package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lab is where the jobs run.
type lab struct {
	*testing.T
	dir, program, launcher string
	clean                  map[setting]clean
	mark                   string // the file that a fault makes when it happens
	disk                   string // a small filesystem; empty if none can be had
}

// clean is a run without faults.
type clean struct {
	digest string
	steps  int // of an epoch
}

// job is one start of the program under mpirun.
type job struct {
	code  int
	text  string
	begun time.Time
	ended time.Time
}

func (l *lab) must(name string, args ...string) {
	l.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		l.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// start runs the program on ranks; during is called with the run directory while it works.
func (l *lab) start(ranks int, faults string, during func(), args ...string) job {
	l.Helper()
	if err := os.Remove(l.mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.Fatal(err)
	}
	c := exec.Command(l.launcher,
		append([]string{"-np", strconv.Itoa(ranks), l.program, "train"}, args...)...)
	c.Env = append(os.Environ(), "HALOGNN_FAULTS="+strings.Trim(faults+","+unhurried, ","),
		"HALOGNN_FAULT_MARK="+l.mark)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	begin := time.Now()
	if err := c.Start(); err != nil {
		l.Fatal(err)
	}
	if during != nil {
		during()
	}
	hung := time.AfterFunc(2*death,
		func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	err := c.Wait()
	if !hung.Stop() {
		l.Errorf("%s: the job did not end in %v", faults, 2*death)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.Fatal(err)
	}
	code := c.ProcessState.ExitCode()
	if code < 0 { // the launcher itself died by the signal that it passed on
		code = 128 + int(c.ProcessState.Sys().(syscall.WaitStatus).Signal())
	}
	return job{code, out.String(), begin, time.Now()}
}

func newLab(t *testing.T) *lab {
	launcher := os.Getenv("HALOGNN_MPIRUN")
	if launcher == "" {
		t.Skip("HALOGNN_MPIRUN is not set: no MPI was found when env.sh was sourced, or it was not")
	}
	// Open MPI's mpirun waits twice so long before it ends for any failure
	t.Setenv("OMPI_MCA_odls_base_sigkill_timeout", "1")
	l := &lab{T: t, dir: t.TempDir(), launcher: launcher, clean: map[setting]clean{}}
	l.program, l.mark = filepath.Join(l.dir, "halognn-faults"), filepath.Join(l.dir, "mark")
	l.must("go", "build", "-tags", os.Getenv("HALOGNN_TAGS")+",faults", "-o", l.program,
		"halognn/src/cmd/halognn")
	data := filepath.Join(l.dir, "data")
	l.must(l.program, "generate", "--kind", "sbm", "--vertices", "1200", "--degree", "8",
		"--features", "8", "--classes", "4", "--seed", "1", "--out", data)
	l.must(l.program, "partition", "--data", data, "--parts", "4", "--method", "ldg", "--seed", "1",
		"--out", l.parts())
	err := os.WriteFile(filepath.Join(l.dir, "config.yaml"), []byte(jobConfig), 0o666)
	if err != nil {
		t.Fatal(err)
	}
	l.mount()
	return l
}

// spared returns the outcome of a run without faults, which it makes if there is none yet.
func (l *lab) spared(s setting) clean {
	if c, there := l.clean[s]; there {
		return c
	}
	run := filepath.Join(l.dir, fmt.Sprint("clean-", len(l.clean)))
	args := append(l.args(l.parts(), run), s.args()...)
	if j := l.start(s.ranks, "", nil, args...); j.code != 0 {
		l.Fatalf("a run of %v without faults: code %d\n%s", s, j.code, j.text)
	}
	digest, steps := l.summary(run)
	l.clean[s] = clean{digest, steps}
	return l.clean[s]
}

// mount makes a filesystem that is soon full.
func (l *lab) mount() {
	disk := filepath.Join(l.dir, "disk")
	if err := os.Mkdir(disk, 0o777); err != nil {
		l.Fatal(err)
	}
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=4m"); err != nil {
		fmt.Printf("left out: a disk that is really full, since none of a few megabytes can be "+
			"mounted (%v); run as root\n", err)
		return
	}
	l.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			l.Error(err)
		}
	})
	l.disk = disk
}

func (l *lab) parts() string { return filepath.Join(l.dir, "parts") }

func (l *lab) args(parts, run string) []string {
	return []string{"--config", filepath.Join(l.dir, "config.yaml"), "--set", "data.parts=" + parts,
		"--set", "run.dir=" + run}
}

func (l *lab) summary(run string) (digest string, steps int) {
	text, err := os.ReadFile(filepath.Join(run, "summary.json"))
	if err != nil {
		l.Error(err)
		return "", 0
	}
	var s struct {
		LossDigest    string `json:"loss_digest"`
		StepsPerEpoch int    `json:"steps_per_epoch"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		l.Error(err)
	}
	return s.LossDigest, s.StepsPerEpoch
}

func (l *lab) checkpoints(run string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(run, "checkpoints"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.Error(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "step-") {
			names = append(names, e.Name())
		}
	}
	return names
}

// processes returns those whose command line names the run.
func (l *lab) processes(run string) (ids []string) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		ids = nil
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range lines {
			if text, err := os.ReadFile(path); err == nil &&
				bytes.Contains(text, []byte("run.dir="+run+"\x00")) {
				ids = append(ids, filepath.Base(filepath.Dir(path)))
			}
		}
		if len(ids) == 0 || time.Now().After(deadline) {
			return ids
		}
	}
}

// featuresOf returns the features of the last part.
func (l *lab) featuresOf(parts string) string {
	files, err := filepath.Glob(filepath.Join(parts, "*", "features.npy"))
	if more, _ := filepath.Glob(filepath.Join(parts, "features*.npy")); len(files) == 0 {
		files = more
	}
	if err != nil || len(files) == 0 {
		l.Fatalf("no features in %s: %v", parts, err)
	}
	return files[len(files)-1]
}

func (l *lab) truncate(file string, by int64) {
	info, err := os.Stat(file)
	if err == nil {
		err = os.Truncate(file, info.Size()/by)
	}
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) alter(file string) {
	text, err := os.ReadFile(file)
	if err == nil {
		text[len(text)/2] ^= 0x40
		err = os.WriteFile(file, text, 0o666)
	}
	if err != nil {
		l.Fatal(err)
	}
}

// overwrite puts vertices that there are not into an array of them, in place: the file does not
// shrink for a moment.
func (l *lab) overwrite(file string) {
	const header = 128
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		l.Fatal(err)
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt(bytes.Repeat([]byte{0x7f}, int(info.Size()-header)), header)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		l.Fatal(err)
	}
}

// filler is the file that fills the disk of a run.
func filler(run string) string { return run + "-filler" }

func (l *lab) fill(path string) {
	f, err := os.Create(path)
	if err != nil {
		l.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		l.Fatal(err)
	}
}

func (l *lab) waitFor(pattern string) {
	for begin := time.Now(); time.Since(begin) < death; time.Sleep(10 * time.Millisecond) {
		if names, err := filepath.Glob(pattern); err == nil && len(names) > 0 {
			return
		}
	}
	l.Errorf("%s did not appear in %v", pattern, death)
}
