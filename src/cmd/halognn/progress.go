package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"halognn/src/train"
)

// newProgress shows how far a run is on standard error: a bar that is redrawn, or plain lines for a log file.
func newProgress(kind string, epochs int) train.Progress {
	if kind == "bar" || kind == "auto" && term.IsTerminal(int(os.Stderr.Fd())) {
		return &bar{lines: lines{epochs}}
	}
	return lines{epochs}
}

// lines prints a line for every evaluation.
type lines struct{ epochs int }

func (l lines) Epoch(int, int) {}
func (l lines) Step(float64)   {}

func (l lines) Evaluated(epoch int, line string) {
	fmt.Fprintf(os.Stderr, "epoch %d/%d  %s\n", epoch, l.epochs, line)
}

func (l lines) Note(_ context.Context, line string) { fmt.Fprintf(os.Stderr, "note: %s\n", line) }

// bar also draws the steps of the epoch under way.
type bar struct {
	lines
	shown *progressbar.ProgressBar
}

func (b *bar) Epoch(epoch, steps int) {
	b.shown = progressbar.NewOptions(steps, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(30),
		progressbar.OptionSetDescription(fmt.Sprintf("epoch %d/%d", epoch, b.epochs)), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}

func (b *bar) Step(float64) { _ = b.shown.Add(1) } // what cannot be drawn is not worth ending a run for

func (b *bar) Evaluated(epoch int, line string) {
	_ = b.shown.Finish()
	b.lines.Evaluated(epoch, line)
}
