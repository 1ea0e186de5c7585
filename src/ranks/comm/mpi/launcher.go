package mpi

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sizeVariables are the variables in which launchers tell each process how many processes there
// are. The first one that is set counts. The order matters because Open MPI's mpirun and hydra may
// start their daemons with srun, which sets its own variable too.
var sizeVariables = []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}

// Launch is what the environment variables of launchers say about this process.
type Launch struct {
	Variable string // variable that has the number of processes; "" if none is set
	Size     int    // number of processes in that variable; 1 if none is set
	// Inherited is true if the variables are meant for another process. That is a shell that a
	// launcher started for a user, or a process from which this one inherited them. This process
	// has no peers, and MPI would wait for them.
	Inherited bool
}

// Launched returns how this process was started.
func Launched() Launch { return launchOf(here()) }

// surroundings are the facts that show whether a launcher started this process, or whether it only
// inherited a launcher's variables.
type surroundings struct {
	env     func(name string) string
	names   []string              // names of all environment variables
	answers func(uri string) bool // whether a server of PMIx or of a daemon listens at the URI
	socket  func(fd int) bool     // whether the process has an open socket with this number
	// ancestors returns the names of the programs that started this one, the nearest first. The
	// result whole is true if the list goes back to the first process of the system.
	ancestors func() (names []string, whole bool)
	prompt    func() (typed bool) // whether the user typed the command in an interactive shell
}

// launchOf reads the launchers' variables. It trusts them only if the launcher is there: its server
// answers, its socket is open, or its daemon is an ancestor of this process. Slurm can also start a
// shell for a user (srun --pty). A command typed there runs in its own process group on a terminal;
// a task of Slurm does not.
func launchOf(s surroundings) Launch {
	stale := Launch{Size: 1}
	for _, name := range sizeVariables {
		n, err := strconv.Atoi(s.env(name))
		if err != nil || n < 1 {
			continue
		}
		real := false
		switch name {
		case "OMPI_COMM_WORLD_SIZE":
			real = s.served()
		case "PMI_SIZE":
			real = s.managed()
		default:
			real = s.task()
		}
		if real {
			return Launch{name, n, false}
		}
		if n > stale.Size || stale.Variable == "" {
			stale = Launch{name, n, true}
		}
	}
	return stale
}

// served reports whether the server that mpirun runs for its processes answers.
func (s *surroundings) served() bool {
	for _, name := range s.names {
		if (strings.HasPrefix(name, "PMIX_SERVER_URI") ||
			name == "OMPI_MCA_orte_local_daemon_uri") &&
			s.answers(s.env(name)) {
			return true
		}
	}
	return false
}

// managed reports whether the process manager that set PMI_SIZE is still running. It looks for a
// socket that this process has inherited or, on Crays, for other variables.
func (s *surroundings) managed() bool {
	// srun sets PMI_SIZE too, for the tasks of a step and for a shell that it starts for a user.
	if s.env("SLURM_STEP_NUM_TASKS") == s.env("PMI_SIZE") && (s.prompt() || s.task()) {
		return !s.prompt()
	}
	if fd, err := strconv.Atoi(s.env("PMI_FD")); err == nil {
		return s.socket(fd)
	}
	if port := s.env("PMI_PORT"); port != "" {
		return s.answers(";tcp4://" + port)
	}
	return slices.ContainsFunc(s.names, func(name string) bool {
		return strings.HasPrefix(name, "PALS_") || strings.HasPrefix(name, "ALPS_") ||
			name == "PMI_CONTROL_PORT"
	})
}

// task reports whether this process belongs to a task of a Slurm step. If the list of ancestors is
// incomplete, it returns true: the step's daemon is not visible in some containers, or where /proc
// hides other users' processes.
func (s *surroundings) task() bool {
	if s.prompt() {
		return false
	}
	names, whole := s.ancestors()
	return !whole || slices.Contains(names, "slurmstepd") ||
		strings.HasPrefix(s.env("PMIX_NAMESPACE"), "slurm.") && s.served()
}

func here() surroundings {
	var names []string
	for _, line := range os.Environ() {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	return surroundings{os.Getenv, names, answers, isSocket, ancestors, typed}
}

// answers reports whether somebody listens at an address such as "name;tcp4://127.0.0.1:1234;...".
// It returns false only if the address refuses connections. A server that does not answer may be
// busy. For addresses that are not TCP or have an unknown form, only MPI knows whether somebody
// listens.
func answers(uri string) bool {
	for _, part := range strings.Split(uri, ";")[1:] {
		kind, address, ok := strings.Cut(part, "://")
		if !ok || !strings.HasPrefix(kind, "tcp") {
			continue
		}
		peer, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = peer.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return true
		}
	}
	return uri != "" && !strings.Contains(uri, "tcp")
}

func isSocket(fd int) bool {
	var stat unix.Stat_t
	return unix.Fstat(fd, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// ancestors reads the ancestors from Linux's /proc.
func ancestors() (names []string, whole bool) {
	for pid := os.Getppid(); pid > 0 && len(names) < 100; {
		f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil {
			return names, false
		}
		pid = 0
		for lines := bufio.NewScanner(f); lines.Scan(); {
			switch name, value, _ := strings.Cut(lines.Text(), ":"); name {
			case "Name":
				names = append(names, strings.TrimSpace(value))
			case "PPid":
				pid, _ = strconv.Atoi(strings.TrimSpace(value))
			}
		}
		_ = f.Close()
	}
	return names, true
}

// typed reports whether this process has a terminal, and belongs to a process group that the shell
// of its session made. Then a user typed the command.
func typed() bool {
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	_ = terminal.Close()
	session, err := unix.Getsid(0)
	return err == nil && session != unix.Getpgrp()
}

// linger keeps the process alive after an MPI_Finalize that took the given time, if Open MPI's
// launcher started it. The function lingering says for how long. A signal ends the wait.
func linger(took time.Duration) {
	stay := lingering(took)
	if stay == 0 || os.Getenv("OMPI_COMM_WORLD_SIZE") == "" {
		return
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(end)
	select {
	case <-end:
	case <-time.After(stay):
	}
}

// lingering returns how long a process should stay alive after an MPI_Finalize that took the given
// time. In MPI_Finalize, Open MPI 4 sends the node's daemon a message that the process is about to
// end, and waits at most 2 s for an answer. If hundreds of ranks share few cores, the process may
// end before the daemon has read this message. Then mpirun says that a rank ended without
// finalising, and returns 1. Ranks that sleep leave the cores to the daemon.
func lingering(took time.Duration) time.Duration {
	const slow, most = time.Second, 20 * time.Second
	if took < slow {
		return 0
	}
	return min(3*took, most)
}
