// Package energy reads how many joules the processors, the memory and the GPUs of a node have used.
//
//	/sys/class/powercap/intel-rapl:0    package-0  microjoules, wraps at a bound ───┐
//	/sys/class/powercap/intel-rapl:0:0  dram       the same ────────────────────────┼─> Meter.Read
//	libnvidia-ml.so                     a GPU      millijoules, since driver load ──┘
//
// The counters are RAPL of Intel's and AMD's processors (Linux's powercap), and those of NVIDIA's
// GPUs since Volta. They are of the whole node: other jobs on it count as well. If one cannot be
// read, a reason is given, never 0 joules: since Linux 5.10 the files belong to root, and virtual
// machines have none.
package energy

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Kind is a kind of hardware that uses energy.
type Kind int

// The kinds.
const (
	Packages Kind = iota // processors, without the memory if that has a counter of its own
	DRAM
	GPUs
	NumKinds
)

var kindNames = [NumKinds]string{"packages", "dram", "gpus"}

// String returns the name under which the kind is reported.
func (k Kind) String() string { return kindNames[k] }

// Options say what to read.
type Options struct {
	Powercap string   // the directory of the powercap counters; empty: Linux's
	NVML     string   // the NVML library; empty: the system's loader finds it
	GPUs     []string // ids of this node's GPUs, 32 hexadecimal digits each
}

// A counter counts the energy of one part, and restarts at 0 beyond span.
type counter struct {
	name string
	read func() (uint64, error)
	span uint64  // largest value, in the counter's unit; 0: it never wraps
	unit float64 // joules of one unit of the counter
	last uint64
}

// Meter adds up the counters since Open. A goroutine reads them several times in the shortest time
// in which one of them can wrap. Several goroutines may use a Meter.
type Meter struct {
	lock     sync.Mutex
	counters [NumKinds][]counter
	joules   [NumKinds]float64
	why      [NumKinds]string // why there is no value; "" if there is one
	read     time.Time        // time of the last read
	close    func()
	stop     chan struct{}
	done     chan struct{}
}

// mostWatts is more than the power that one counter measures: that of one processor or of its
// memory.
const mostWatts = 1000

// A counter that wraps is read `reads` times in the time in which mostWatts would fill its span.
// The interval is at least shortest, as each file costs a system call, and at most longest.
const (
	reads    = 4
	shortest = 100 * time.Millisecond
	longest  = 30 * time.Second
)

// round is the shortest time in which a counter can wrap all the way to its last value: if it is
// read later than that, its value is lost. 0 if it never wraps.
func (c *counter) round() time.Duration {
	return time.Duration(float64(c.span) * c.unit / mostWatts * float64(time.Second))
}

// interval is the time between two reads of the counters.
func (m *Meter) interval() time.Duration {
	all := longest
	for _, counters := range m.counters {
		for i := range counters {
			if round := counters[i].round(); round > 0 {
				all = min(all, round/reads)
			}
		}
	}
	return max(all, shortest)
}

// Open starts counting.
func Open(o Options) *Meter {
	m := &Meter{stop: make(chan struct{}), done: make(chan struct{}), close: func() {}}
	m.openPowercap(o.Powercap)
	if len(o.GPUs) == 0 {
		m.why[GPUs] = "the job has no GPU"
	} else if gpus, end, err := openNVML(o.NVML, o.GPUs); err != nil {
		m.why[GPUs] = err.Error()
	} else {
		m.counters[GPUs], m.close = gpus, end
	}
	for k := range NumKinds {
		for i := range m.counters[k] {
			c := &m.counters[k][i]
			var err error
			if c.last, err = c.read(); err != nil {
				m.fail(k, c, err)
				break
			}
		}
	}
	m.read = time.Now()
	go m.keep(m.interval())
	return m
}

func (m *Meter) keep(interval time.Duration) {
	defer close(m.done)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.Read()
		case <-m.stop:
			return
		}
	}
}

func (m *Meter) fail(k Kind, c *counter, err error) {
	m.why[k], m.counters[k] = fmt.Sprintf("%s: %v", c.name, err), nil
}

// Read returns the joules since Open and, for each kind without a value, why; "" if it has one.
func (m *Meter) Read() (joules [NumKinds]float64, why [NumKinds]string) {
	m.lock.Lock()
	defer m.lock.Unlock()
	unread := time.Since(m.read)
	m.read = time.Now()
	for k := range NumKinds {
		for i := range m.counters[k] {
			c := &m.counters[k][i]
			if round := c.round(); round > 0 && unread > round {
				m.fail(k, c, fmt.Errorf("the counter was not read for %.3g s, as if the job was "+
					"suspended, and may wrap in %.3g s", unread.Seconds(), round.Seconds()))
				break
			}
			now, err := c.read()
			if err != nil {
				m.fail(k, c, err)
				break
			}
			grown := now - c.last
			if now < c.last { // it has wrapped
				if c.last > c.span {
					m.fail(k, c, errors.New("its value went down"))
					break
				}
				grown = c.span - c.last + now
			}
			c.last = now
			m.joules[k] += float64(grown) * c.unit
		}
	}
	return m.joules, m.why
}

// Close stops the goroutine and releases the counters.
func (m *Meter) Close() error {
	close(m.stop)
	<-m.done
	m.lock.Lock()
	defer m.lock.Unlock()
	m.close()
	m.counters = [NumKinds][]counter{}
	return nil
}
