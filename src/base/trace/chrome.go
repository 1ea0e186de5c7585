package trace

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// Recorder writes what one rank does as Chrome trace events, which Perfetto opens. There is a
// process for each rank, and in it a track for each stage. If several minibatches were in a stage
// at the same time, the stage has several tracks. Every span has the epoch, the step and the number
// of the minibatch.
//
//	[
//	{"name":"sample","cat":"train","ph":"X","ts":12.345,"dur":6.7,"pid":0,"tid":100,
//	 "args":{"item":3,"epoch":1,"step":3}},
//
// Only Close ends the list, but readers of the format accept a list without its end, so the trace
// of a killed run is usable. A nil Recorder records nothing. Many goroutines may use a Recorder at
// a time. A span costs about a microsecond and allocates nothing.
type Recorder struct {
	mu     sync.Mutex
	file   *os.File
	buf    *bufio.Writer
	line   []byte
	rank   int
	base   int64 // Unix time in nanoseconds from which ts counts
	stages []stageTracks
	err    error

	kind         string // kind of the current pass: train or evaluate
	epoch, split int    // split is the number of minibatches in a step
	// Number of minibatches in an epoch; 0 if no minibatches of later epochs are prepared in
	// advance.
	items int
}

// stageTracks are the tracks of one stage. ends[i] is the time at which the last span on track i
// ends.
type stageTracks struct {
	name string
	ends []int64
}

// CreateRecorder makes the file DIR/rank-0003.json (for rank 3). The argument `base` is the Unix
// time in nanoseconds that is shown as 0. It must be the same for all ranks.
func CreateRecorder(dir string, rank int, base int64) (*Recorder, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("rank-%04d.json", rank)))
	if err != nil {
		return nil, err
	}
	r := &Recorder{file: f, buf: bufio.NewWriterSize(f, 1<<20), rank: rank, base: base,
		kind: "start", split: 1}
	// if this fails, Flush or Close will return the error
	_, _ = fmt.Fprintf(r.buf,
		"[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
		rank, rank)
	return r, nil
}

// Pass sets the labels of the next spans: the kind (train, evaluate), the epoch, and the
// minibatches in a step. If minibatches of later epochs are prepared in advance, items is the
// number of minibatches in an epoch, and minibatches with larger numbers belong to later epochs.
// Otherwise items is 0. No span may be recorded during the call.
func (r *Recorder) Pass(kind string, epoch, split, items int) {
	if r != nil {
		r.kind, r.epoch, r.split, r.items = kind, epoch, split, items
	}
}

// indexOf returns the index of a stage.
func (r *Recorder) indexOf(stage string) int {
	for i := range r.stages {
		if r.stages[i].name == stage {
			return i
		}
	}
	r.stages = append(r.stages, stageTracks{name: stage})
	return len(r.stages) - 1
}

// place puts the span from begin to end on the first track on which it overlaps no earlier span. It
// returns the track, and whether this track is new. Spans come nearly in the order of their ends,
// so comparing with the last span of a track is enough.
func (t *stageTracks) place(begin, end int64) (track int, isNew bool) {
	for k, last := range t.ends {
		if last <= begin {
			t.ends[k] = end
			return k, false
		}
	}
	t.ends = append(t.ends, end)
	return len(t.ends) - 1, true
}

// trackStride is the distance between the track numbers of two stages.
const trackStride = 1000

// Span records that a stage worked on the minibatch with the number item, from the time begin on,
// for the duration took.
func (r *Recorder) Span(stage string, item int, begin time.Time, took time.Duration) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	epoch := r.epoch
	if r.items > 0 {
		epoch, item = epoch+item/r.items, item%r.items
	}
	from := begin.UnixNano() - r.base
	k := r.indexOf(stage)
	track, isNew := r.stages[k].place(from, from+int64(took))
	line := r.line[:0]
	if isNew {
		line = r.appendTrackName(line, k, track)
	}
	line = append(append(line, ",\n{\"name\":\""...), stage...)
	line = append(append(line, "\",\"cat\":\""...), r.kind...)
	line = strconv.AppendFloat(append(line, "\",\"ph\":\"X\",\"ts\":"...), float64(from)/1e3, 'f',
		3, 64)
	line = strconv.AppendFloat(append(line, ",\"dur\":"...), float64(took)/1e3, 'f', 3, 64)
	line = r.appendTrack(line, k, track)
	line = strconv.AppendInt(append(line, ",\"args\":{\"item\":"...), int64(item), 10)
	line = strconv.AppendInt(append(line, ",\"epoch\":"...), int64(epoch), 10)
	line = strconv.AppendInt(append(line, ",\"step\":"...), int64(item/r.split), 10)
	r.write(append(line, "}}"...))
}

// write writes a line and reuses its buffer for the next. It stores the first error, which Close
// will return.
func (r *Recorder) write(line []byte) {
	r.line = line
	if _, err := r.buf.Write(line); r.err == nil {
		r.err = err
	}
}

func (r *Recorder) appendTrack(line []byte, stage, track int) []byte {
	line = strconv.AppendInt(append(line, ",\"pid\":"...), int64(r.rank), 10)
	return strconv.AppendInt(append(line, ",\"tid\":"...), int64((stage+1)*trackStride+track), 10)
}

// appendTrackName appends the event that names a track.
func (r *Recorder) appendTrackName(line []byte, stage, track int) []byte {
	line = append(line, ",\n{\"name\":\"thread_name\",\"ph\":\"M\""...)
	line = r.appendTrack(line, stage, track)
	line = append(append(line, ",\"args\":{\"name\":\""...), r.stages[stage].name...)
	if track > 0 {
		line = strconv.AppendInt(append(line, ' '), int64(track+1), 10)
	}
	return append(line, "\"}}"...)
}

// Flush makes all spans visible to readers of the file.
func (r *Recorder) Flush() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.buf.Flush(); r.err == nil {
		r.err = err
	}
}

// Close ends the list, and returns the first error since the recorder was made.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	r.write(append(r.line[:0], "\n]\n"...))
	r.mu.Unlock()
	r.Flush()
	if err := r.file.Close(); r.err == nil {
		r.err = err
	}
	if r.err != nil {
		return fmt.Errorf("writing %s: %w", r.file.Name(), r.err)
	}
	return nil
}
