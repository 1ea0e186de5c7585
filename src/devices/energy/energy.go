// Package energy reads how many joules the processors, the memory and the GPUs of a node have used.
//
//	/sys/class/powercap/intel-rapl:0    package-0  microjoules, wraps at a bound ───┐
//	/sys/class/powercap/intel-rapl:0:0  dram       the same ────────────────────────┼─> Meter.Read
//	libnvidia-ml.so                     a GPU      millijoules, since driver load ──┘
//
// The counters are RAPL of Intel's and AMD's processors (Linux's powercap), and those of NVIDIA's
// GPUs since Volta. They count the energy of the whole node, including that of other jobs on it. If
// a counter cannot be read, the package returns a reason instead of 0 joules. Common reasons are
// that only root can read the files since Linux 5.10, and that virtual machines do not have them.
package energy

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Kind is a kind of hardware that uses energy.
type Kind int

// The kinds of hardware.
const (
	Packages Kind = iota // processors, without their memory if that has its own counter
	DRAM
	GPUs
	NumKinds
)

var kindNames = [NumKinds]string{"packages", "dram", "gpus"}

// String returns the name under which the kind is reported.
func (k Kind) String() string { return kindNames[k] }

// Options say where the counters are.
type Options struct {
	Powercap string   // directory of the powercap counters; empty means Linux's usual directory
	NVML     string   // path of the NVML library; if empty, the system's loader looks for it
	GPUs     []string // ids of this node's GPUs, 32 hexadecimal digits each
}

// counter is a hardware counter for the energy of one part. After its largest value, span, it
// begins again at 0 (it wraps).
type counter struct {
	name string
	read func() (uint64, error)
	span uint64  // largest value, in the counter's unit; 0 if it never wraps
	unit float64 // joules of one unit of the counter
	last uint64
}

// Meter adds up the counters since Open. A goroutine reads the counters so often that none can wrap
// twice between two reads. Several goroutines may use a Meter.
type Meter struct {
	lock     sync.Mutex
	counters [NumKinds][]counter
	joules   [NumKinds]float64
	why      [NumKinds]string // reason why there is no value; "" if there is one
	read     time.Time        // time of the last read
	close    func()
	stop     chan struct{}
	done     chan struct{}
}

// mostWatts is more than the power of any part whose counter wraps. Such a part is one processor or
// its memory.
const mostWatts = 1000

// At a power of mostWatts, a counter goes from 0 to its largest value in a certain time. The
// constant reads is the number of reads in this time. The interval between two reads is at least
// shortest, because reading a file takes a system call. It is at most longest.
const (
	reads    = 4
	shortest = 100 * time.Millisecond
	longest  = 30 * time.Second
)

// round returns the shortest time after which a counter can have the same value again, because it
// has wrapped. If more time passes between two reads, it is unknown how often the counter has
// wrapped. The result is 0 if the counter never wraps.
func (c *counter) round() time.Duration {
	return time.Duration(float64(c.span) * c.unit / mostWatts * float64(time.Second))
}

// interval returns the time between two reads of the counters.
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

// Open makes a Meter, which begins to read the counters.
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

// Read returns the joules since Open for each kind. If a kind has no value, the result why has the
// reason; otherwise it is "".
func (m *Meter) Read() (joules [NumKinds]float64, why [NumKinds]string) {
	m.lock.Lock()
	defer m.lock.Unlock()
	unread := time.Since(m.read)
	m.read = time.Now()
	for k := range NumKinds {
		for i := range m.counters[k] {
			c := &m.counters[k][i]
			if round := c.round(); round > 0 && unread > round {
				m.fail(k, c, fmt.Errorf("the counter was not read for %.3g s (was the job "+
					"suspended?), but it may wrap in %.3g s", unread.Seconds(), round.Seconds()))
				break
			}
			now, err := c.read()
			if err != nil {
				m.fail(k, c, err)
				break
			}
			grown := now - c.last
			if now < c.last { // the counter has wrapped
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
