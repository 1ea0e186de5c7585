package flock

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Process identifies a process among the processes of all nodes.
type Process struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// of the process, in ticks since the boot: numbers are used again
	Start string `json:"start"`
	Space string `json:"space"` // boot and namespace in which the number means something
}

// ThisProcess describes the caller. A field that cannot be read stays empty.
func ThisProcess() Process {
	host, _ := os.Hostname()
	p := Process{Host: host, PID: os.Getpid()}
	p.Start = startOf(p.PID)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, unknown := os.Readlink("/proc/self/ns/pid")
	if err == nil && unknown == nil && p.Start != "" {
		p.Space = strings.TrimSpace(string(boot)) + " " + space
	}
	return p
}

// Lives reports whether the process is alive. This can be known only for a process of this node
// that was started after the node's last boot; for any other process, the result known is false.
func (p Process) Lives() (alive, known bool) {
	if p.Space == "" || p.Space != ThisProcess().Space {
		return false, false
	}
	return p.Start != "" && p.Start == startOf(p.PID), true
}

// startOf returns when the process with number pid began, in ticks since the boot. It returns "" if
// there is no such process or it is a zombie.
func startOf(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// Indices of fields after the name; the name itself may contain blanks and brackets.
	const state, start = 0, 19
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return ""
	}
	return fields[start]
}
