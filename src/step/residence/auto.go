package residence

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/policy"
	"halognn/src/topology/graph"
)

// Auto chooses a cache. Accesses are known in advance, so the policies run on minibatches of the
// first epoch to count the rows that they would transfer. How long a step takes with those
// transfers depends on the machine and the network, so the best few candidates are tried, for some
// epochs each, and the fastest is kept.
//
//	sample some minibatches ──> count rows of every candidate, sum over ranks
//	sort, drop those that transfer far too much ──> try epochs of each ──> the fastest:
//	                                           mean step of the best epoch, slowest rank
//
// Ranks compare the same values, so all make the same choice. A choice affects traffic and time,
// but no number of the training.
//
// A nil Auto means that the config chooses the cache: its methods do nothing.
type Auto struct {
	store  *Store
	from   Position // where training begins
	o      policy.Settings
	trials []trial // trials, by ascending rows
	length int     // number of epochs of each trial
	at     int     // index of the trial under way
	left   int     // number of epochs left of that trial

	// State of the epoch under way.
	steps []float64 // seconds from the end of one step to the end of the next
	last  time.Time // the end of the previous step
	begun time.Time
	part  bool // a restart cut the epoch, so it does not count as a trial

	why  string
	done bool
}

// Choice is the outcome of Auto, as a checkpoint keeps it: a resumed run does not choose again
// unless the capacity or the nodes differ.
type Choice struct {
	Policy string  `json:"policy"`
	Gamma  float64 `json:"gamma,omitempty"`
	Delta  int     `json:"delta,omitempty"`
	// Leave is "" in choices made before the field existed; this means LeaveScore.
	Leave        string  `json:"leave,omitempty"`
	Alpha        float64 `json:"alpha"`
	HaloFraction float64 `json:"halo_fraction,omitempty"`
	Ranks        int     `json:"ranks"`
	Nodes        int     `json:"nodes"`
	Why          string  `json:"why"`
}

// Choice returns the outcome of Auto; nil if there is none, as on a single node, where a cache is
// of no use.
func (a *Auto) Choice() *Choice {
	if a == nil || !a.done || a.store.Job.AllInMemory() {
		return nil
	}
	c := &Choice{
		Policy: a.o.Policy, Alpha: a.o.Alpha, HaloFraction: a.o.HaloFraction,
		Ranks: a.store.Comm.Size(), Nodes: a.store.Job.Nodes(), Why: a.why,
	}
	if policy.Find(a.o.Policy).Rounds {
		c.Gamma, c.Delta, c.Leave = a.o.Gamma, a.o.Delta, a.o.Leave
	}
	return c
}

// holds reports whether the choice was made for the present capacity and nodes.
func (c *Choice) holds(s *Store) bool {
	o := &s.Job.Cache
	return c != nil && c.Alpha == o.Alpha && c.HaloFraction == o.HaloFraction &&
		c.Ranks == s.Comm.Size() && c.Nodes == s.Job.Nodes()
}

// options returns o with the choice applied.
func (c *Choice) options(o policy.Settings) policy.Settings {
	o.Policy = c.Policy
	if policy.Find(c.Policy).Rounds {
		o.Gamma, o.Delta, o.Leave, o.Evict, o.Initial = c.Gamma, c.Delta, c.Leave, true, policy.VIP
	}
	return o
}

// trial is a candidate: a policy and its parameters.
type trial struct {
	name    string
	options policy.Settings
	rows    float64 // counted rows (bytes if sizes differ) that a step of all ranks transfers
	seconds float64 // mean step of the slowest rank in the fastest epoch; 0 before the first epoch
}

const (
	countedSteps = 160 // largest number of minibatches on which candidates are counted
	// Candidates that transfer more than this many times the rows of the best are not tried.
	maxRowsRatio = 2.5
	maxTrials    = 4
	// Least number of steps of a trial. Short epochs repeat, and the fastest counts, because noise
	// only adds time.
	trialSteps   = 48
	tieTolerance = 0.02 // smaller relative differences in time are noise; then fewer rows win
)

// candidates returns the variants to count on the given number of minibatches, for every policy
// that has variants. Only the best variant of each policy is tried.
func (s *Store) candidates(minibatches int) (all []trial) {
	for _, name := range policy.Names(policy.Trainable) {
		p := policy.Find(name)
		if p.Variants == nil {
			continue
		}
		for _, v := range p.Variants(minibatches) {
			o := s.Job.Cache
			v.Set(&o)
			name, of := v.Name, o.Policy
			if !s.Job.Sample.HasFanouts() {
				o.WithoutFanouts()
			}
			if o.Policy != of {
				name = o.Policy
			}
			all = append(all, trial{name: name, options: o})
		}
	}
	return all
}

// Choose counts the candidates for the cache of a run that begins at a position. The argument
// `previous` is the choice of a resumed run, or nil. If it still holds, nothing is counted.
// Collective.
func (s *Store) Choose(at Position, previous *Choice) (*Auto, error) {
	a := &Auto{store: s, from: at, o: s.Job.Cache}
	switch {
	case s.Job.AllInMemory() || !s.Job.Reads():
		a.done, a.why = true, "none: every rank reads all rows from memory"
		a.o.Policy = policy.None
		return a, nil
	case previous.holds(s):
		a.done, a.why = true, previous.Why
		a.o = previous.options(a.o)
		if !s.Job.Sample.HasFanouts() {
			a.o.WithoutFanouts()
		}
		return a, nil
	}
	var trials []trial
	count := func(m *access.Graph) (err error) { trials, err = a.countCandidates(m); return err }
	err := s.withGraph(s.Job.Cache.Policy, count)
	if err != nil {
		return nil, fmt.Errorf("cache.policy auto: %w", err)
	}
	a.plan(trials, s.Job.Epochs-at.Epoch+1, s.Job.Steps())
	a.o = a.trials[0].options
	return a, nil
}

// Settings returns the settings of the current cache.
func (a *Auto) Settings() policy.Settings { return a.o }

// plan decides which candidates are tried, and for how many epochs each. All trials together take
// at most a third of the run's epochs, but at least one epoch.
func (a *Auto) plan(all []trial, epochs, steps int) {
	a.trials = worthTrying(all, epochs)
	a.length = min((trialSteps+steps-1)/steps, max(1, epochs/3/len(a.trials)))
	a.left = a.length
}

// worthTrying sorts candidates by rows and keeps the best variant of each policy. It drops
// candidates that transfer more than maxRowsRatio times the rows of the best. If the run has few
// epochs, it keeps fewer, so that trials of one epoch each take at most a third of the run.
func worthTrying(all []trial, epochs int) []trial {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b trial) int { return cmp.Compare(a.rows, b.rows) })
	var out []trial
	for _, t := range all {
		same := func(o trial) bool { return o.options.Policy == t.options.Policy }
		seen := slices.ContainsFunc(out, same)
		if !seen && t.rows <= maxRowsRatio*all[0].rows {
			out = append(out, t)
		}
	}
	return out[:min(len(out), maxTrials, max(1, epochs/3))]
}

// countCandidates returns the candidates with the rows that each transfers in a step. Collective.
func (a *Auto) countCandidates(m *access.Graph) ([]trial, error) {
	s, at := a.store, a.from
	each := s.Job.Items()
	minibatches := min(countedSteps, max(16, 2*each), (s.Job.Epochs-at.Epoch+1)*each-at.Item)
	all := s.candidates(minibatches)
	rows := make([]float64, len(all))
	err := a.countRows(m, all, rows, minibatches)
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

// countRows counts this rank's rows for each candidate. The first half of the minibatches fills the
// caches and is not counted.
func (a *Auto) countRows(m *access.Graph, all []trial, rows []float64, minibatches int) error {
	s := a.store
	r := s.workload()
	var sampling error
	var steps [][]graph.VertexID
	for remote := range r.Ahead(a.from.Epoch, a.from.Item, minibatches, &sampling) {
		steps = append(steps, slices.Clone(remote))
	}
	if sampling != nil {
		return sampling
	}
	capacity, err := s.Job.Capacity(m, s.Comm.Rank(), &s.Job.Cache)
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
		rows[i] *= float64(s.Job.Minibatches())
	}
	return nil
}

// countOne plays the accesses of a rank to the cache of a candidate. It returns the mean number of
// rows that a minibatch fetches, over the second half of the minibatches.
func countOne(m *access.Graph, r *access.Workload, o policy.Settings, capacity int, p []float32,
	steps [][]graph.VertexID,
) (float64, error) {
	kind, half, total := policy.Find(o.Policy), len(steps)/2, 0
	setup := policy.Setup{Graph: m, Workload: r, Settings: &o, Capacity: capacity}
	var err error
	if setup.Window, err = kind.WindowOf(&setup, p, max(1, half)); err != nil {
		return 0, err
	}
	_, err = policy.Play(kind, setup, slices.Values(steps), func(i int, d *cache.Decision) {
		if i >= half {
			total += int(policy.Fetched(r.Kinds, steps[i], d))
		}
	})
	return float64(total) / float64(max(1, len(steps)-half)), err
}

// Begin chooses the cache of an epoch. It reports whether this cache differs from that of the epoch
// before; if so, the caller must open it. If a restart cut the epoch (`part`), it does not count as
// a trial.
func (a *Auto) Begin(part bool) (o policy.Settings, another bool) {
	if a == nil || a.done {
		return o, false
	}
	if len(a.trials) == 1 {
		a.settle()
		return a.o, false
	}
	if a.left == 0 {
		next := a.at + 1
		if next == len(a.trials) {
			next = a.settle()
		}
		another = next != a.at
		a.at, a.o = next, a.trials[next].options
		a.left = a.length
	}
	if a.part = part; !part {
		a.left--
	}
	return a.o, another
}

// Time starts to time the steps of an epoch, whose cache is open.
func (a *Auto) Time() {
	if a != nil {
		a.steps, a.last, a.begun = a.steps[:0], time.Time{}, time.Now()
	}
}

// Foreseen returns how many of the given number of later epochs are certain to keep the current
// cache. During a trial these are the epochs that are left of the trial.
func (a *Auto) Foreseen(epochs int) int {
	if a != nil && !a.done {
		return min(epochs, a.left)
	}
	return epochs
}

// settle ends the trials and returns the best one.
func (a *Auto) settle() int {
	best := fastest(a.trials)
	a.done, a.why = true, a.reason(best)
	a.store.note("cache.policy auto chooses %s", a.why)
	return best
}

// fastest returns the trial with the shortest step. If several trials are within tieTolerance of
// it, the one that transfers the fewest rows wins. It comes before the others in the list.
func fastest(trials []trial) int {
	least := math.Inf(1)
	for _, t := range trials {
		least = min(least, t.seconds)
	}
	return slices.IndexFunc(trials,
		func(t trial) bool { return t.seconds <= least*(1+tieTolerance) })
}

// reason returns a text about the best trial, and about those with which it was compared.
func (a *Auto) reason(best int) string {
	var others []string
	of := "rows"
	if a.store.shards().Schema.Typed() {
		of = "bytes of rows"
	}
	for i, t := range a.trials {
		text := fmt.Sprintf("%s: %.0f %s a step", t.name, t.rows, of)
		if t.seconds > 0 {
			text += fmt.Sprintf(", %.4g s", t.seconds)
		}
		if i == best {
			continue
		}
		others = append(others, text)
	}
	t := a.trials[best]
	text := fmt.Sprintf("%s: %.0f %s a step, counted", t.name, t.rows, of)
	if t.seconds > 0 {
		text += fmt.Sprintf("; %.4g s a step, measured", t.seconds)
	}
	if len(others) > 0 {
		text += " (" + strings.Join(others, "; ") + ")"
	}
	return text
}

// StepEnds records the time of a step while trials last.
func (a *Auto) StepEnds() {
	if a == nil || a.done {
		return
	}
	now := time.Now()
	if !a.last.IsZero() {
		a.steps = append(a.steps, now.Sub(a.last).Seconds())
	}
	a.last = now
}

// End records the step time of an epoch that has ended. Collective.
func (a *Auto) End() error {
	if a == nil || a.done || a.part {
		return nil
	}
	seconds, err := comm.AgreeMax(a.store.Comm, a.stepSeconds(a.store.Job.Depth))
	if t := &a.trials[a.at]; t.seconds == 0 || seconds < t.seconds {
		t.seconds = seconds
	}
	return err
}

// stepSeconds returns the mean step time of the epoch, without the steps in which the pipeline
// fills, if enough others remain.
func (a *Auto) stepSeconds(depth int) float64 {
	steps := a.steps
	if len(steps) == 0 { // an epoch with a single step
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
