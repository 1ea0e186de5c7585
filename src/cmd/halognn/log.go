package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"

	"halognn/src/model/nn"
	"halognn/src/runs/watch"
)

// What the program says while it works goes through log/slog to standard error:
//
//	error     what ends the program, with the exit code     text: "halognn: ..."
//	info      a note, something a user should know          text: "note: ..."
//	progress  a line for every epoch                        text: the line alone
//
// Records of a job carry the rank and, while it trains, epoch and step. The text for people leaves
// them out: notes are rank 0's, and messages name rank and step where these matter. Results go to
// standard output and are not logged.
const levelProgress = slog.LevelInfo - 1

// logFormats are the values of --log-format.
var logFormats = []string{"text", "json"}

// logFlags has the flags that choose the form of messages and turn off all but errors.
type logFlags struct {
	format string
	quiet  bool
}

// logger returns the logger that the flags ask for. For an unknown format it returns a text logger
// and an error.
func (l logFlags) logger(w io.Writer) (*slog.Logger, error) {
	least := levelProgress
	if l.quiet {
		least = slog.LevelError
	}
	switch l.format {
	case "text":
		return slog.New(&plainText{w: w, least: least}), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w,
			&slog.HandlerOptions{Level: least, ReplaceAttr: nameProgress})), nil
	}
	plain := slog.New(&plainText{w: w, least: least})
	return plain, fmt.Errorf("--log-format %s is unknown; use %s", l.format,
		strings.Join(logFormats, " or "))
}

// stderr is where the program reports what it does.
var stderr = &pipe{file: os.Stderr, closed: make(chan struct{})}

// pipe is a file whose reader may go away, as in `halognn train 2>&1 | head`. From then on it
// writes to standard output, where somebody may still read.
type pipe struct {
	file   *os.File
	once   sync.Once
	closed chan struct{} // closed when the reader is gone
}

func (p *pipe) Write(text []byte) (int, error) {
	n, err := p.file.Write(text)
	if errors.Is(err, syscall.EPIPE) {
		p.once.Do(func() { close(p.closed) })
		return os.Stdout.Write(text)
	}
	return n, err
}

// stdout is where results go. A failed write is an error of the command, even if the command
// ignores what Write returns.
var stdout = &results{file: os.Stdout}

type results struct {
	file *os.File
	mu   sync.Mutex
	err  error // error of the first write that failed
}

func (r *results) Write(text []byte) (int, error) {
	n, err := r.file.Write(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = cmp.Or(r.err, err)
	return n, err
}

// end returns an error if some result was not written. A reader that has gone away is no error.
func (r *results) end() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := r.file.Stat()
	// NFS may report a full disk only when the file is closed
	if r.err == nil && err == nil && info.Mode().IsRegular() {
		r.err = r.file.Close()
	}
	if r.err == nil || errors.Is(r.err, syscall.EPIPE) {
		return nil
	}
	return withCode(exitFailed, fmt.Errorf("standard output was not written in full: %w; make "+
		"room, and run the command again if you need the text", r.err))
}

// nameProgress replaces the number of levelProgress in a record by the name PROGRESS.
func nameProgress(_ []string, a slog.Attr) slog.Attr {
	if level, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey &&
		level == levelProgress {
		return slog.String(slog.LevelKey, "PROGRESS")
	}
	return a
}

// plainText writes messages for people, one at a time, without their attributes.
type plainText struct {
	mu    sync.Mutex
	w     io.Writer
	least slog.Level
}

func (p *plainText) Enabled(_ context.Context, level slog.Level) bool { return level >= p.least }

func (p *plainText) Handle(_ context.Context, r slog.Record) error {
	prefix := "note: "
	switch {
	case r.Level >= slog.LevelError:
		prefix = "halognn: "
	case r.Level < slog.LevelInfo:
		prefix = ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := io.WriteString(p.w, prefix+r.Message+"\n")
	return err
}

func (p *plainText) WithAttrs([]slog.Attr) slog.Handler { return p }
func (p *plainText) WithGroup(string) slog.Handler      { return p }

// say prints the error that ends the program.
func (p *process) say(err error) {
	attributes := []any{"code", codeOf(err)}
	if p.inMPI.Load() {
		attributes = append(attributes, "rank", p.rank.Load())
	}
	slog.Error(err.Error()+curedBy(err), attributes...)
}

// curedBy returns advice if err says that a limit was reached, and otherwise "".
func curedBy(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "; raise the limit of open files (ulimit -n)"
	case errors.Is(err, syscall.ENFILE):
		return "; the machine has reached its limit of open files (fs.file-max)"
	case errors.Is(err, syscall.EDQUOT):
		return "; the quota of this user or project is used up (quota -s, lfs quota)"
	}
	return ""
}

// codeOf returns the exit code of a command that ends with err.
func codeOf(err error) int {
	var has *exitError
	switch {
	case errors.Is(err, nn.ErrDiverged): // whatever exit code the error has
		return exitDiverged
	case errors.Is(err, watch.ErrStalled):
		return exitStalled
	case errors.As(withCode(exitFailed, err), &has):
		return has.code
	}
	return 0
}

func init() {
	plain, _ := logFlags{format: "text"}.logger(stderr)
	slog.SetDefault(plain) // until the flags have been read
}
