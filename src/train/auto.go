package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/comm"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/policy"
	"halognn/src/watch"
)

// PolicyAuto leaves it to the run which policy it uses, and with which parameters.
const PolicyAuto = "auto"

// auto chooses a cache. Accesses are known in advance, so what every policy would transfer is counted, not guessed: on the minibatches of the first
// epoch, by the policies themselves. What the transfers cost beside the deciding, the copying and the overlap depends on machine and
// network, so the best few are tried, some epochs each, and the fastest stays.
//
//	sample some minibatches ──> count rows of every candidate ──> sort, drop what is hopeless ──> epochs of each ──> the fastest
//	                            sum over ranks                                                     mean step of the best epoch, slowest rank
//
// Everything that is compared is the same on all ranks, so all choose alike. No choice changes a number: only rows, and time.
type auto struct {
	trials []trial // in the order of their rows
	length int     // epochs of a trial
	at     int     // the trial under way
	left   int     // its epochs to come

	// Of the epoch under way.
	steps []float64 // seconds from the end of one step to that of the next
	last  time.Time // the end of the step before
	begun time.Time
	part  bool // a restart has left only a part of it, or nothing, which is no trial

	why  string
	done bool
}

// choice is what auto has settled on, as a checkpoint keeps it: a run that is stopped and goes on does not choose again, unless the room or
// the nodes are others.
type choice struct {
	Policy       string  `json:"policy"`
	Gamma        float64 `json:"gamma,omitempty"`
	Delta        int     `json:"delta,omitempty"`
	Alpha        float64 `json:"alpha"`
	HaloFraction float64 `json:"halo_fraction,omitempty"`
	Ranks        int     `json:"ranks"`
	Nodes        int     `json:"nodes"`
	Why          string  `json:"why"`
}

// choice returns what auto has settled on, or nil. That caches are of no use on one node is no choice.
func (s *session) choice() *choice {
	if s.auto == nil || !s.auto.done || s.nodes == 1 {
		return nil
	}
	o := s.o.Cache
	c := &choice{Policy: o.Policy, Alpha: o.Alpha, HaloFraction: o.HaloFraction, Ranks: s.Comm.Size(), Nodes: s.nodes, Why: s.auto.why}
	if policy.Find(o.Policy).Rounds {
		c.Gamma, c.Delta = o.Gamma, o.Delta
	}
	return c
}

// holds reports whether the choice was made for the cache and the nodes that there are now.
func (c *choice) holds(s *session) bool {
	o := s.o.Cache
	return c != nil && c.Alpha == o.Alpha && c.HaloFraction == o.HaloFraction && c.Ranks == s.Comm.Size() && c.Nodes == s.nodes
}

// options returns o with the choice made.
func (c *choice) options(o policy.Settings) policy.Settings {
	o.Policy = c.Policy
	if policy.Find(c.Policy).Rounds {
		o.Gamma, o.Delta, o.Evict, o.Initial = c.Gamma, c.Delta, true, policy.VIP
	}
	return o
}

// trial is a candidate: a policy and its parameters.
type trial struct {
	name    string
	options policy.Settings
	rows    float64 // transferred by a step of all ranks, counted
	seconds float64 // a step's, of the slowest rank: the mean of an epoch, the fastest one; 0 before it has been tried
}

const (
	countedSteps = 160 // minibatches that candidates are counted on, at most
	hopeless     = 2.5 // candidates that transfer so many times the rows of the best are not tried
	mostTrials   = 4
	trialSteps   = 48   // that a trial had better have: short epochs are tried several times, and the fastest counts, for noise only ever adds
	asGood       = 0.02 // differences in time below this are noise, and fewer rows win
)

// candidates are what is counted, on so many minibatches: the variants of every policy that has
// some. Of each policy only the best one is tried.
func (s *session) candidates(minibatches int) (all []trial) {
	for _, name := range policy.Names(policy.Trainable) {
		p := policy.Find(name)
		if p.Variants == nil {
			continue
		}
		for _, v := range p.Variants(minibatches) {
			o := s.o.Cache
			v.Set(&o)
			all = append(all, trial{name: v.Name, options: o})
		}
	}
	return all
}

// openAuto counts the candidates and sets the policy of the first epoch. Collective.
func (s *session) openAuto() error {
	s.auto = new(auto)
	if s.nodes == 1 || !s.job.Reads() {
		s.auto.done, s.auto.why = true, "none: every rank reads all rows from memory"
		s.o.Cache.Policy = policy.None
		return nil
	}
	if s.Resume != nil {
		if c := s.Resume.state.Cache; c.holds(s) {
			s.auto.done, s.auto.why = true, c.Why
			s.o.Cache = c.options(s.o.Cache)
			return nil
		}
	}
	trials, err := s.countCandidates()
	if err != nil {
		return fmt.Errorf("cache.policy auto: %w", err)
	}
	epoch, _ := s.beginning()
	s.auto.plan(trials, s.o.Epochs-epoch+1, s.steps())
	s.o.Cache = s.auto.trials[0].options
	return nil
}

// plan decides what is tried, and for how long: a third of the epochs at most, or the first one.
func (a *auto) plan(all []trial, epochs, steps int) {
	a.trials = worthTrying(all, epochs)
	a.length = min((trialSteps+steps-1)/steps, max(1, epochs/3/len(a.trials)))
	a.left = a.length
}

// worthTrying sorts candidates by rows and leaves the best parameters of each policy, without those that are hopeless, and as many as a third of the epochs has
// room for.
func worthTrying(all []trial, epochs int) []trial {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b trial) int { return cmp.Compare(a.rows, b.rows) })
	var out []trial
	for _, t := range all {
		seen := slices.ContainsFunc(out, func(o trial) bool { return o.options.Policy == t.options.Policy })
		if !seen && t.rows <= hopeless*all[0].rows {
			out = append(out, t)
		}
	}
	return out[:min(len(out), mostTrials, max(1, epochs/3))]
}

// countCandidates returns the candidates with the rows that a step transfers. Collective.
func (s *session) countCandidates() ([]trial, error) {
	epoch, item := s.beginning()
	each := s.steps() * s.minibatches()
	minibatches := min(countedSteps, max(16, 2*each), (s.o.Epochs-epoch+1)*each-item)
	all := s.candidates(minibatches)
	rows := make([]float64, len(all))
	err := s.countRows(all, rows, minibatches)
	if err = comm.Agree(s.Comm, err); err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].rows, err = comm.AgreeSum(s.Comm, rows[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// countRows counts this rank's rows of each candidate. Half of the minibatches fill the caches and are not counted.
func (s *session) countRows(all []trial, rows []float64, minibatches int) error {
	m, err := access.New(&s.topology.Graph, access.Options{Workers: s.Workers})
	if err != nil {
		return err
	}
	defer m.Free()
	r := s.reader()
	var fault error
	var steps [][]graph.VertexID
	epoch, item := s.beginning()
	for remote := range r.Ahead(epoch, item, minibatches, &fault) {
		steps = append(steps, slices.Clone(remote))
	}
	if fault != nil {
		return fault
	}
	capacity, err := s.cacheCapacity(m)
	if err != nil {
		return err
	}
	p, err := m.Reads(r)
	if err != nil {
		return err
	}
	defer mem.Free(p)
	for i := range all {
		if rows[i], err = countOne(m, r, all[i].options, capacity, p, steps); err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
		rows[i] *= float64(s.minibatches())
	}
	return nil
}

// countOne plays the accesses of a rank to a candidate and returns the rows of a minibatch in the
// second half of them.
func countOne(m *access.Graph, r *access.Reader, o policy.Settings, capacity int, p []float32,
	steps [][]graph.VertexID,
) (float64, error) {
	kind, half, total := policy.Find(o.Policy), len(steps)/2, 0
	setup := policy.Setup{Graph: m, Reader: r, Settings: &o, Capacity: capacity}
	var err error
	if setup.Window, err = kind.Plan(&setup, p, max(1, half)); err != nil {
		return 0, err
	}
	_, err = policy.Play(kind, setup, slices.Values(steps), func(i int, d *cache.Decision) {
		if i >= half {
			total += d.Transferred()
		}
	})
	return float64(total) / float64(max(1, len(steps)-half)), err
}

// beginTrial switches to the cache that an epoch is to be trained with. Collective.
func (r *run) beginTrial(ctx context.Context, epoch int) error {
	a := r.auto
	if a == nil || a.done {
		return nil
	}
	if len(a.trials) == 1 {
		a.settle(r, ctx)
		return nil
	}
	if a.left == 0 {
		next := a.at + 1
		if next == len(a.trials) {
			next = a.settle(r, ctx)
		}
		if next != a.at {
			a.at = next
			if err := r.switchCache(a.trials[next].options, epoch); err != nil {
				return err
			}
		}
		a.left = a.length
	}
	if a.part = r.Resume != nil && r.Resume.state.Epoch == epoch && r.Resume.state.Step > 0; !a.part {
		a.left--
	}
	a.steps, a.last, a.begun = a.steps[:0], time.Time{}, time.Now()
	return nil
}

// sameCache returns how many of the epochs to come have the cache of the epoch under way for certain: those of its trial.
func (a *auto) sameCache(epochs int) int {
	if a != nil && !a.done {
		return min(epochs, a.left)
	}
	return epochs
}

// settle ends the trials and returns the best one.
func (a *auto) settle(r *run, ctx context.Context) int {
	best := fastest(a.trials)
	a.done, a.why = true, a.reason(best)
	if r.Progress != nil {
		r.Progress.Note(ctx, "cache.policy auto chooses "+a.why)
	}
	return best
}

// fastest returns the trial with the shortest step; of those that are as good as that, the one that transfers least, which comes first.
func fastest(trials []trial) int {
	least := math.Inf(1)
	for _, t := range trials {
		least = min(least, t.seconds)
	}
	return slices.IndexFunc(trials, func(t trial) bool { return t.seconds <= least*(1+asGood) })
}

// reason says what was compared.
func (a *auto) reason(best int) string {
	var others []string
	for i, t := range a.trials {
		text := fmt.Sprintf("%s: %.0f rows a step", t.name, t.rows)
		if t.seconds > 0 {
			text += fmt.Sprintf(", %.4g s", t.seconds)
		}
		if i == best {
			continue
		}
		others = append(others, text)
	}
	t := a.trials[best]
	text := fmt.Sprintf("%s: %.0f rows a step, counted", t.name, t.rows)
	if t.seconds > 0 {
		text += fmt.Sprintf("; %.4g s a step, measured", t.seconds)
	}
	if len(others) > 0 {
		text += " (" + strings.Join(others, "; ") + ")"
	}
	return text
}

// stepEnds notes the time of a step while trials last.
func (a *auto) stepEnds() {
	if a == nil || a.done {
		return
	}
	now := time.Now()
	if !a.last.IsZero() {
		a.steps = append(a.steps, now.Sub(a.last).Seconds())
	}
	a.last = now
}

// endTrial notes what an epoch has shown. Collective.
func (r *run) endTrial() error {
	a := r.auto
	if a == nil || a.done || a.part {
		return nil
	}
	seconds, err := comm.AgreeMax(r.Comm, a.stepSeconds(r.o.Depth))
	if t := &a.trials[a.at]; t.seconds == 0 || seconds < t.seconds {
		t.seconds = seconds
	}
	return err
}

// stepSeconds returns the mean step of the epoch that has ended, without the steps in which the pipeline fills, if there are enough others.
func (a *auto) stepSeconds(depth int) float64 {
	steps := a.steps
	if len(steps) == 0 { // an epoch of a single step
		return time.Since(a.begun).Seconds()
	}
	if fills := depth + 1; len(steps) > 2*fills {
		steps = steps[fills:]
	}
	sum := 0.0
	for _, t := range steps {
		sum += t
	}
	return sum / float64(len(steps))
}

// switchCache goes on with another cache from the beginning of an epoch. Collective.
func (s *session) switchCache(o policy.Settings, epoch int) error {
	s.watch.At(epoch, 0, watch.CacheSwitch)
	if err := s.closeRows(); err != nil {
		return err
	}
	s.o.Cache, s.from = o, epoch
	return s.openRows()
}

// closeRows closes cache, exchange and pipeline. Collective.
func (s *session) closeRows() error {
	var err error
	for _, f := range slices.Backward(s.rowClosers) {
		err = errors.Join(err, f())
	}
	s.rowClosers, s.cached, s.dynamic, s.expected = nil, nil, nil, 0
	return err
}
