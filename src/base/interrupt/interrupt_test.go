package interrupt

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// of the goroutines of a process that is to be interrupted
const stateVariable = "HALOGNN_TEST_STATE"

// TestMain makes this program a process that waits for signals, and says that it does and which one
// came first.
func TestMain(m *testing.M) {
	state := os.Getenv(stateVariable)
	if state == "" {
		os.Exit(m.Run())
	}
	first := First(syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1)
	if state == "stuck" {
		go func() {
			for n := 0; n >= 0; n++ { // which cannot be preempted: the test sees to that
			}
		}()
		fmt.Println("ready")
		runtime.GC() // waits for that goroutine, and everything for the collector
	}
	woken := Woken(func(pid int) bool { return pid == 0 || pid == os.Getppid() })
	fmt.Println("ready")
	select {
	case s := <-first:
		fmt.Println(s)
	case <-woken:
		fmt.Println("woken")
	}
	select {}
}

// interrupted starts a process in a state, sends it signals, and returns how it ended.
func interrupted(
	t *testing.T, state string, signals []syscall.Signal, after []time.Duration,
) (code int, said string) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), stateVariable+"="+state, "GOMAXPROCS=2")
	if state == "stuck" {
		c.Env = append(c.Env, "GODEBUG=asyncpreemptoff=1")
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(5*time.Minute, func() { _ = c.Process.Kill() })
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for k, s := range signals {
		time.Sleep(after[k])
		if err := c.Process.Signal(s); err != nil {
			t.Fatalf("before signal %d: %v", k, err)
		}
	}
	sent := time.Now()
	text, _ := io.ReadAll(lines) // to the end of the process
	if exit := (*exec.ExitError)(nil); !errors.As(c.Wait(), &exit) {
		t.Error("the process ended well")
	}
	if !late.Stop() || time.Since(sent) > time.Minute {
		t.Errorf("the process lived on for %v", time.Since(sent))
	}
	return c.ProcessState.ExitCode(), string(text)
}

// The second signal, whichever it is, ends the process with its code; one that comes with the first
// is the first.
func TestSecondSignalEnds(t *testing.T) {
	const soon, later = SamePress / 5, 3 * SamePress / 2
	const term, intr, usr1 = syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1
	type signals = []syscall.Signal
	once, twice := []time.Duration{soon, later}, []time.Duration{soon, soon, later}
	for _, state := range []string{"idle", "stuck"} {
		for _, c := range []struct {
			name    string
			signals signals
			after   []time.Duration
			code    int
		}{
			{"pressed again", signals{intr, intr}, once, 130},
			{"delivered by terminal and launcher", signals{intr, intr, term}, twice, 143},
			{"the batch system insists", signals{term, term}, once, 143},
			{"another signal", signals{usr1, intr}, once, 130},
			{"the same", signals{usr1, usr1}, once, 138},
		} {
			t.Run(state+", "+c.name, func(t *testing.T) {
				t.Parallel()
				if state == "stuck" && !guards {
					t.Skip("built without cgo: a goroutine has to run")
				}
				code, said := interrupted(t, state, c.signals, c.after)
				if code != c.code {
					t.Errorf("exit code %d, want %d", code, c.code)
				}
				if want := c.signals[0].String() + "\n"; state == "idle" && said != want {
					t.Errorf("the process said %q, want %q", said, want)
				}
			})
		}
	}
}

// A process that runs is told by SIGCONT that SIGTERM will come, which is no second signal. One
// that was stopped only goes on.
func TestWoken(t *testing.T) {
	for _, c := range []struct {
		name    string
		signals []syscall.Signal
		after   []time.Duration
		code    int
		said    string
	}{
		{"while it runs", []syscall.Signal{syscall.SIGCONT, syscall.SIGTERM, syscall.SIGTERM},
			[]time.Duration{standstill, 2 * SamePress, 2 * SamePress}, 143, "woken\n"},
		{"after a stop", []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGTERM,
			syscall.SIGTERM}, []time.Duration{standstill, 3 * standstill, standstill,
			2 * SamePress},
			143, "terminated\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, said := interrupted(t, "idle", c.signals, c.after)
			if code != c.code || said != c.said {
				t.Errorf("exit code %d, want %d; it said %q, want %q", code, c.code, said, c.said)
			}
		})
	}
}

// A SIGCONT of another process than the launcher tells nothing, after a short stop or without one.
func TestWokenByOthers(t *testing.T) {
	if !guards {
		t.Skip("built without cgo: the sender is unknown")
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), stateVariable+"=idle")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for _, signals := range []string{"-CONT", "-STOP", "-CONT"} {
		if text, err := exec.Command("kill", signals,
			fmt.Sprint(c.Process.Pid)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if said, err := lines.ReadString('\n'); err != nil || said != "terminated\n" {
		t.Errorf("it said %q (%v)", said, err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
}
