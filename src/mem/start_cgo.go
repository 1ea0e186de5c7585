//go:build cgo

package mem

// #include <sys/resource.h>
// #include <unistd.h>
//
// // The Go runtime and the C library end the process by a signal where they get no room to begin
// // with, before main: look first.
// static void begin_with(int resource, rlim_t least, const char *told, size_t length)
// {
// 	struct rlimit l;
// 	if (getrlimit(resource, &l) == 0 && l.rlim_cur != RLIM_INFINITY && l.rlim_cur < least) {
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
// 	begin_with(RLIMIT_DATA, 200UL << 20, data, sizeof data - 1);
// }
import "C"
