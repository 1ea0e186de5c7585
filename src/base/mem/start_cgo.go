//go:build cgo

package mem

// #include <pthread.h>
// #include <stdio.h>
// #include <stdlib.h>
// #include <sys/resource.h>
// #include <unistd.h>
//
// // Threads that startable starts wait at this gate until it has started all of them. Other
// // processes share the limits (ulimit -u counts the threads of the user, pids.max those of the
// // control group), so only trying shows how many threads can be started.
// static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
//
// static void *wait_at_gate(void *unused)
// {
// 	pthread_mutex_lock(&gate);
// 	pthread_mutex_unlock(&gate);
// 	return unused;
// }
//
// static int startable(int n)
// {
// 	pthread_attr_t small;
// 	pthread_t *threads = malloc(n * sizeof *threads);
// 	int started = 0;
// 	if (!threads) return 0;
// 	pthread_attr_init(&small);
// 	pthread_attr_setstacksize(&small, 1 << 20);
// 	pthread_mutex_lock(&gate);
// 	while (started < n && pthread_create(&threads[started], &small, wait_at_gate, NULL) == 0)
// 		started++;
// 	pthread_mutex_unlock(&gate);
// 	for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
// 	pthread_attr_destroy(&small);
// 	free(threads);
// 	return started;
// }
//
// // How many threads and open files the Go runtime needs to start. Only a few threads are tried,
// // because every process of the node tries them.
// enum { LEAST_THREADS = 6, LEAST_FILES = 48 };
//
// static void threads_to_begin(void)
// {
// 	int need = LEAST_THREADS, most = startable(need);
// 	if (most < need) {
// 		usleep(50000); // other processes may be trying at the same time
// 		most = startable(need);
// 	}
// 	if (most == need) return;
// 	dprintf(2, "halognn: this process may start %d threads more, and needs %d to begin with; raise "
// 		"the limit of the user's processes (ulimit -u) or of the job's (pids.max of its control "
// 		"group, TasksMax of systemd, --pids-limit of containers)\n", most, need);
// 	_exit(2);
// }
//
// // If memory, addresses or files are too few to start, the Go runtime or the C library ends the
// // process by a signal, before main. This check comes first and writes a message instead.
// static void begin_with(int resource, rlim_t least, const char *told, size_t length)
// {
// 	struct rlimit l;
// 	if (getrlimit(resource, &l) == 0 && l.rlim_cur != RLIM_INFINITY &&
// 	    (resource == RLIMIT_NOFILE ? l.rlim_max : l.rlim_cur) < least) { // Go raises that one
// 		ssize_t written = write(2, told, length);
// 		_exit(written < 0 ? 1 : 2);
// 	}
// }
//
// __attribute__((constructor)) static void room_to_begin(void)
// {
// 	static const char addresses[] =
// 		"halognn: the limit of this process's address space (ulimit -v) is below 1 GiB, which "
// 		"the Go runtime needs; set `ulimit -v unlimited`, and limit memory by the job's cgroup\n";
// 	static const char data[] =
// 		"halognn: the limit of this process's memory (ulimit -d) is below 200 MiB, which the "
// 		"program needs; set `ulimit -d unlimited`, and limit memory by the job's cgroup\n";
// 	begin_with(RLIMIT_AS, 1UL << 30, addresses, sizeof addresses - 1);
// 	static const char files[] =
// 		"halognn: the limit of this process's open files (ulimit -n) is below 48, which the "
// 		"program needs; set `ulimit -n 1024`\n";
// 	begin_with(RLIMIT_DATA, 200UL << 20, data, sizeof data - 1);
// 	begin_with(RLIMIT_NOFILE, LEAST_FILES, files, sizeof files - 1);
// 	threads_to_begin();
// }
import "C"

import "sync"

var starting sync.Mutex

// StartableThreads returns how many of n more threads the limits of the process, of the user and of
// the control groups allow. To find out, it starts n threads and ends them, which takes some
// microseconds for each.
func StartableThreads(n int) int {
	starting.Lock()
	defer starting.Unlock()
	return int(C.startable(C.int(n)))
}
