package main

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// One Ctrl-C may arrive twice; a second one, and nothing else, ends at once.
func TestPresses(t *testing.T) {
	begin := time.Now()
	const soon, later = samePress / 5, 3 * samePress
	for _, c := range []struct {
		name  string
		first os.Signal
		then  os.Signal
		after time.Duration
		want  bool
	}{
		{"delivered by terminal and launcher", syscall.SIGINT, syscall.SIGINT, soon, false},
		{"pressed again", syscall.SIGINT, syscall.SIGINT, later, true},
		{"pressed after another signal", syscall.SIGUSR1, syscall.SIGINT, later, true},
		{"the batch system insists", syscall.SIGTERM, syscall.SIGTERM, later, false},
	} {
		var p presses
		if first, atOnce := p.take(c.first, begin); !first || atOnce {
			t.Errorf("%s: the first signal: first %t, at once %t", c.name, first, atOnce)
		}
		if first, atOnce := p.take(c.then, begin.Add(c.after)); first || atOnce != c.want {
			t.Errorf("%s: the second signal: first %t, at once %t, want %t", c.name, first, atOnce, c.want)
		}
	}
}
