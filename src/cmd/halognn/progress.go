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

	"halognn/src/runs/train"
)

// Reports about the steps of a run come at most once in lineEvery as lines, and at most once in
// barEvery as the text beside a bar.
const (
	lineEvery = 5 * time.Second
	barEvery  = 200 * time.Millisecond
)

// newProgress shows on standard error how far a run is: by a bar that is redrawn, or by a line
// every few seconds and for every evaluation.
func newProgress(l logFlags, kind string, epochs int) train.Progress {
	lines := &lines{pace: pace{now: time.Now, every: lineEvery, epochs: epochs}}
	drawn := kind == "bar" || kind == "auto" && term.IsTerminal(int(os.Stderr.Fd()))
	if drawn && l.format == "text" && !l.quiet {
		lines.pace.every = barEvery
		return &bar{lines: lines}
	}
	return lines
}

// lines logs steps, evaluations and notes, with the epoch and the step that rank 0 is in.
type lines struct {
	pace        pace
	epoch, step atomic.Int64 // atomic, because notes may come from any goroutine
}

func (l *lines) Begin(line string) { l.log(context.Background(), levelProgress, line) }
func (l *lines) End(line string)   { l.log(context.Background(), levelProgress, line) }

func (l *lines) Epoch(epoch, first, steps int) {
	l.epoch.Store(int64(epoch))
	l.step.Store(int64(first))
	l.pace.epochBegins(epoch, first, steps)
}

func (l *lines) Step(loss float64) {
	if l.stepEnds() {
		l.log(context.Background(), levelProgress, l.pace.line(loss), "loss", loss)
	}
}

// stepEnds counts a step, and reports whether it is time to show it.
func (l *lines) stepEnds() bool {
	l.step.Add(1)
	return l.pace.stepEnds()
}

func (l *lines) Evaluated(epoch int, line string, fields ...any) {
	l.log(context.Background(), levelProgress,
		fmt.Sprintf("epoch %d/%d  %s", epoch, l.pace.epochs, line), fields...)
}

func (l *lines) Note(ctx context.Context, line string) { l.log(ctx, slog.LevelInfo, line) }

func (l *lines) log(ctx context.Context, level slog.Level, line string, fields ...any) {
	attributes := []any{"rank", 0}
	if epoch := l.epoch.Load(); epoch > 0 { // training has begun
		attributes = append(attributes, "epoch", epoch, "step", l.step.Load())
	}
	slog.Log(ctx, level, line, append(attributes, fields...)...)
}

// bar is lines with a progress bar for the steps of the current epoch.
type bar struct {
	*lines
	shown *progressbar.ProgressBar
}

func (b *bar) Epoch(epoch, first, steps int) {
	b.lines.Epoch(epoch, first, steps)
	b.shown = progressbar.NewOptions(steps-first, progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetDescription(fmt.Sprintf("epoch %d/%d", epoch, b.pace.epochs)),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}

func (b *bar) Step(loss float64) {
	if b.stepEnds() {
		b.shown.Describe(b.pace.short(loss))
	}
	_ = b.shown.Add(1) // a bar that cannot be drawn must not end the run
}

func (b *bar) Evaluated(epoch int, line string, fields ...any) {
	_ = b.shown.Finish()
	b.lines.Evaluated(epoch, line, fields...)
}
