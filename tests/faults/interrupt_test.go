//go:build faults

package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Ctrl-C at mpirun, as a terminal or a notebook sends it, saves where a step takes seconds: with
// the grace time that env.sh gives the launcher.
func TestCtrlCSavesSlowSteps(t *testing.T) {
	grace, found := os.LookupEnv("OMPI_MCA_odls_base_sigkill_timeout") // before the lab's
	if !found {
		t.Fatal("env.sh sets no OMPI_MCA_odls_base_sigkill_timeout")
	}
	l := newLab(t)
	t.Setenv("OMPI_MCA_odls_base_sigkill_timeout", grace)
	for _, millis := range []int{20, 6000} {
		run := filepath.Join(l.dir, fmt.Sprint("interrupted-", millis))
		args := append([]string{"-np", "2", l.program, "train"}, l.args(l.parts(), run)...)
		c := exec.Command(l.launcher, append(args, "--set", "train.epochs=100000", "--set",
			"checkpoint.every_steps=0", "--set", "run.stall_seconds=0")...)
		c.Env = append(os.Environ(), fmt.Sprintf("HALOGNN_FAULTS=forward=slow:%d@-1:-1:-1", millis))
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		var out strings.Builder
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		l.waitFor(filepath.Join(run, "metrics.jsonl"))
		if err := syscall.Kill(-c.Process.Pid, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		// the launcher's exit code is its own affair
		if err := c.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		if left := l.processes(run); len(l.checkpoints(run)) != 1 || len(left) > 0 ||
			!strings.Contains(out.String(), "--resume "+run) {
			t.Errorf("steps of %d ms: checkpoints %v, processes %v are left\n%s", millis,
				l.checkpoints(run), left, out.String())
		}
	}
}
