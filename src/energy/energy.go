// Package energy reads how many joules the processors, the memory and the GPUs of a node have taken.
//
//	/sys/class/powercap/intel-rapl:0        package-0   microjoules, from 0 again at a bound  ─┐
//	/sys/class/powercap/intel-rapl:0:0      dram                                              ─┼─> Meter.Read
//	libnvidia-ml.so: total energy of a GPU              millijoules, since the driver came    ─┘
//
// Intel's and AMD's processors count (RAPL, Linux's powercap), NVIDIA's GPUs since Volta. The counters
// are those of the node: other jobs on it count as well. What cannot be read has a reason, never 0
// joules: the files belong to root since Linux 5.10, and virtual machines have none.
package energy

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Kind is what takes energy.
type Kind int

// The kinds.
const (
	Packages Kind = iota // processors, without memory where that has a counter of its own
	DRAM
	GPUs
	NumKinds
)

var kindNames = [NumKinds]string{"packages", "dram", "gpus"}

// String returns the name under which the kind is reported.
func (k Kind) String() string { return kindNames[k] }

// Options say what to read.
type Options struct {
	Powercap string   // the directory of the counters; empty: Linux's
	NVML     string   // the library; empty: where the system's loader looks
	GPUs     []string // ids of this node's GPUs, 32 hexadecimal digits each
}

// A counter of joules that grows, and begins again at 0 beyond span.
type counter struct {
	name string
	read func() (uint64, error)
	span uint64  // in its own unit; 0: it never wraps
	unit float64 // joules
	last uint64
}

// Meter adds up what counters have counted since Open. A goroutine reads them often enough that none
// wraps twice between two reads: a package of 500 W takes 8 minutes to its bound. It may be used from
// several goroutines.
type Meter struct {
	lock     sync.Mutex
	counters [NumKinds][]counter
	joules   [NumKinds]float64
	why      [NumKinds]string // no value: the reason
	read     time.Time        // of the last read
	close    func()
	stop     chan struct{}
	done     chan struct{}
}

// interval is between two reads of the counters.
const interval = 30 * time.Second

// unwatched is a time in which a counter may have wrapped twice: the process was suspended.
const unwatched = 5 * time.Minute

// Open begins to count.
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
	go m.keep()
	return m
}

func (m *Meter) keep() {
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

// Read returns the joules since Open, and why a kind has none; "" if it has.
func (m *Meter) Read() (joules [NumKinds]float64, why [NumKinds]string) {
	m.lock.Lock()
	defer m.lock.Unlock()
	asleep := time.Since(m.read) > unwatched
	m.read = time.Now()
	for k := range NumKinds {
		for i := range m.counters[k] {
			c := &m.counters[k][i]
			if asleep && c.span > 0 {
				m.fail(k, c, errors.New("the job was suspended for longer than the counter may take to wrap"))
				break
			}
			now, err := c.read()
			if err != nil {
				m.fail(k, c, err)
				break
			}
			grown := now - c.last
			if now < c.last { // it has begun again
				if c.last > c.span {
					m.fail(k, c, errors.New("it went back"))
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

// Close ends the goroutine and gives the counters back.
func (m *Meter) Close() error {
	close(m.stop)
	<-m.done
	m.lock.Lock()
	defer m.lock.Unlock()
	m.close()
	m.counters = [NumKinds][]counter{}
	return nil
}
