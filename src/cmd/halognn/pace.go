package main

import (
	"fmt"
	"time"
)

// pace measures how fast a run goes. Its methods allocate nothing but the text they return.
type pace struct {
	now    func() time.Time
	every  time.Duration // time between two lines
	epochs int

	epoch, step, steps int // the current epoch, its current step, and how many steps it has
	// steps of the whole run that were done when this process began, and that are done now
	first, done int
	begun       time.Time

	// when the last line was shown; saidDone has the number of steps that were done then
	saidAt   time.Time
	saidDone int
}

// epochBegins notes that an epoch begins. Epochs count from 1. The step that comes next has the
// index `first` in this epoch.
func (p *pace) epochBegins(epoch, first, steps int) {
	p.epoch, p.step, p.steps = epoch, first, steps
	p.done = (epoch-1)*steps + first
	if p.begun.IsZero() {
		p.begun, p.first = p.now(), p.done
		p.saidAt, p.saidDone = p.begun, p.done
	}
}

// stepEnds counts a step as done, and reports whether a line is due.
func (p *pace) stepEnds() bool {
	p.step++
	p.done++
	return p.now().Sub(p.saidAt) >= p.every
}

// left returns how long the remaining epochs will take, with their evaluations, at the mean speed
// so far.
func (p *pace) left(now time.Time) time.Duration {
	if p.done == p.first {
		return 0
	}
	each := float64(now.Sub(p.begun)) / float64(p.done-p.first)
	return time.Duration(each * float64(p.epochs*p.steps-p.done)).Round(time.Second)
}

// line says where the run is, with the rate since the last line.
func (p *pace) line(loss float64) string {
	now := p.now()
	rate := float64(p.done-p.saidDone) / now.Sub(p.saidAt).Seconds()
	p.saidAt, p.saidDone = now, p.done
	return fmt.Sprintf("%s  epoch %d/%d  step %d/%d  loss %.4f  %.3g steps/s  %v left",
		now.Format(time.TimeOnly), p.epoch, p.epochs, p.step, p.steps, loss, rate, p.left(now))
}

// short returns the text beside a progress bar.
func (p *pace) short(loss float64) string {
	now := p.now()
	p.saidAt, p.saidDone = now, p.done
	return fmt.Sprintf("epoch %d/%d  loss %.4f  all %v left", p.epoch, p.epochs, loss, p.left(now))
}
