package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"halognn/src/train"
)

// newProgress shows how far a run is on standard error: a bar that is redrawn, or a record for
// every evaluation.
func newProgress(l logFlags, kind string, epochs int) train.Progress {
	lines := &lines{epochs: epochs}
	drawn := kind == "bar" || kind == "auto" && term.IsTerminal(int(os.Stderr.Fd()))
	if drawn && l.format == "text" && !l.quiet {
		return &bar{lines: lines}
	}
	return lines
}

// lines logs every evaluation and note, with the epoch and the step that rank 0 is in.
type lines struct {
	epochs      int
	epoch, step atomic.Int64 // notes may come from any goroutine
}

func (l *lines) Epoch(epoch, first, _ int) {
	l.epoch.Store(int64(epoch))
	l.step.Store(int64(first))
}

func (l *lines) Step(float64) { l.step.Add(1) }

func (l *lines) Evaluated(epoch int, line string) {
	l.log(context.Background(), levelProgress,
		fmt.Sprintf("epoch %d/%d  %s", epoch, l.epochs, line))
}

func (l *lines) Note(ctx context.Context, line string) { l.log(ctx, slog.LevelInfo, line) }

func (l *lines) log(ctx context.Context, level slog.Level, line string) {
	attributes := []any{"rank", 0}
	if epoch := l.epoch.Load(); epoch > 0 { // training has begun
		attributes = append(attributes, "epoch", epoch, "step", l.step.Load())
	}
	slog.Log(ctx, level, line, attributes...)
}

// bar also draws the steps of the epoch under way.
type bar struct {
	*lines
	shown *progressbar.ProgressBar
}

func (b *bar) Epoch(epoch, first, steps int) {
	b.lines.Epoch(epoch, first, steps)
	b.shown = progressbar.NewOptions(steps-first, progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetDescription(fmt.Sprintf("epoch %d/%d", epoch, b.epochs)),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}

func (b *bar) Step(loss float64) {
	b.lines.Step(loss)
	_ = b.shown.Add(1) // what cannot be drawn is not worth ending a run for
}

func (b *bar) Evaluated(epoch int, line string) {
	_ = b.shown.Finish()
	b.lines.Evaluated(epoch, line)
}
