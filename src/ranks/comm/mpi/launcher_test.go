package mpi

import (
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A launch is believed where the launcher is there; variables of a shell are none.
func TestLaunchOf(t *testing.T) {
	step := map[string]string{"SLURM_STEP_NUM_TASKS": "4", "SLURM_PTY_PORT": "40000"}
	pmix := map[string]string{"SLURM_STEP_NUM_TASKS": "4", "PMIX_NAMESPACE": "slurm.pmix.1.0",
		"PMIX_SERVER_URI41": "there"}
	ompi := map[string]string{"OMPI_COMM_WORLD_SIZE": "2", "PMIX_SERVER_URI41": "there",
		"SLURM_STEP_NUM_TASKS": "3"}
	stepd := []string{"bash", "slurmstepd", "systemd"}
	for _, c := range []struct {
		name      string
		env       map[string]string
		ancestors []string
		prompt    bool
		want      Launch
	}{
		{"none", nil, nil, true, Launch{"", 1, false}},
		{"a task", step, stepd, false, Launch{"SLURM_STEP_NUM_TASKS", 4, false}},
		{"srun --pty bash", step, stepd, true, Launch{"SLURM_STEP_NUM_TASKS", 4, true}},
		{"srun --pty bash, with PMIx", pmix, stepd, true, Launch{"SLURM_STEP_NUM_TASKS", 4, true}},
		{"of a step, without it", step, []string{"tmux", "systemd"}, false,
			Launch{"SLURM_STEP_NUM_TASKS", 4, true}},
		{"a task whose daemon /proc hides", step, []string{"bash", "hidden"}, false,
			Launch{"SLURM_STEP_NUM_TASKS", 4, false}},
		{"PMI of srun in a container",
			map[string]string{"PMI_SIZE": "4", "PMI_FD": "6", "SLURM_STEP_NUM_TASKS": "4"}, nil,
			false, Launch{"PMI_SIZE", 4, false}},
		{"a task in a container", pmix, nil, false, Launch{"SLURM_STEP_NUM_TASKS", 4, false}},
		{"mpirun in srun --pty bash", ompi, stepd, true, Launch{"OMPI_COMM_WORLD_SIZE", 2, false}},
		{"variables of an mpirun that is gone",
			map[string]string{"OMPI_COMM_WORLD_SIZE": "2", "PMIX_SERVER_URI41": "gone"}, nil, false,
			Launch{"OMPI_COMM_WORLD_SIZE", 2, true}},
		{"a variable alone", map[string]string{"OMPI_COMM_WORLD_SIZE": "2"}, nil, true,
			Launch{"OMPI_COMM_WORLD_SIZE", 2, true}},
		{"one rank of mpirun, started by srun",
			map[string]string{"OMPI_COMM_WORLD_SIZE": "1",
				"OMPI_MCA_orte_local_daemon_uri": "there",
				"SLURM_STEP_NUM_TASKS":           "3"}, stepd, false,
			Launch{"OMPI_COMM_WORLD_SIZE", 1, false}},
		{"hydra", map[string]string{"PMI_SIZE": "4", "PMI_FD": "6"}, nil, true,
			Launch{"PMI_SIZE", 4, false}},
		{"variables of a hydra that is gone", map[string]string{"PMI_SIZE": "4", "PMI_FD": "7"},
			nil, false,
			Launch{"PMI_SIZE", 4, true}},
		{"hydra by a port", map[string]string{"PMI_SIZE": "4", "PMI_PORT": "there"}, nil, false,
			Launch{"PMI_SIZE", 4, false}},
		{"a Cray", map[string]string{"PMI_SIZE": "4", "PALS_RANKID": "0"}, nil, false,
			Launch{"PMI_SIZE", 4, false}},
		{"PMI of srun", map[string]string{"PMI_SIZE": "4", "PMI_FD": "6",
			"SLURM_STEP_NUM_TASKS": "4"}, stepd,
			false, Launch{"PMI_SIZE", 4, false}},
		{"PMI of srun --pty bash",
			map[string]string{"PMI_SIZE": "4", "PMI_FD": "6", "SLURM_STEP_NUM_TASKS": "4"}, stepd,
			true, Launch{"PMI_SIZE", 4, true}},
		{"no number", map[string]string{"PMI_SIZE": "many"}, nil, false, Launch{"", 1, false}},
	} {
		got := launchOf(surroundings{
			env:   func(name string) string { return c.env[name] },
			names: slices.Sorted(maps.Keys(c.env)),
			answers: func(uri string) bool {
				return uri == "there" || uri == ";tcp4://there"
			},
			socket: func(fd int) bool { return fd == 6 },
			ancestors: func() ([]string, bool) {
				return c.ancestors, !slices.Contains(c.ancestors, "hidden")
			},
			prompt: func() bool { return c.prompt },
		})
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// An address answers while somebody listens; one that is none of TCP is left to MPI.
func TestServersAnswer(t *testing.T) {
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip(err)
	}
	uri := "1.0;tcp4://" + door.Addr().String()
	if !answers(uri) || !answers("1.0;tcp4://127.0.0.1:0;tcp://"+door.Addr().String()) {
		t.Errorf("%s does not answer", uri)
	}
	if err := door.Close(); err != nil {
		t.Fatal(err)
	}
	if answers(uri) || answers("") || !answers("1.0;usock:/tmp/socket") {
		t.Errorf("%s: %t, nothing: %t, a file: %t", uri, answers(uri), answers(""),
			answers("1.0;usock:/tmp/socket"))
	}
}

// A process stays after a slow end until Open MPI's daemon, which has not answered in 2 s, had the
// cores for some seconds; after a quick one, under another launcher or after a signal it does not.
func TestLingering(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 0, 300 * time.Millisecond: 0, 2 * time.Second: 6 * time.Second,
		time.Hour: 20 * time.Second,
	} {
		if got := lingering(took); got != want {
			t.Errorf("after %v it stays for %v, expected %v", took, got, want)
		}
	}
	t.Setenv("OMPI_COMM_WORLD_SIZE", "")
	began := time.Now()
	linger(time.Hour)
	t.Setenv("OMPI_COMM_WORLD_SIZE", "2")
	kept := make(chan os.Signal, 1)
	signal.Notify(kept, unix.SIGTERM) // which ends the process otherwise
	defer signal.Stop(kept)
	defer time.AfterFunc(time.Second, func() { _ = unix.Kill(unix.Getpid(), unix.SIGTERM) }).Stop()
	linger(time.Hour)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it stays for %v under another launcher, or after a signal", took)
	}
}
