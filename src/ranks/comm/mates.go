package comm

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Mates are the ranks that run as processes on one node. If one of them dies without a message, as
// a killed process does, its sockets close. The others notice this at once.
//
//	rank 0 of the node ── a socket ──> rank 1     reports the death of rank 0
//	   │                  a socket ──> rank 2
//	   └─ reports all other deaths
//
// A rank that is about to end in order sends a message to the others. Then no rank of the node
// watches any more, because the job is over. If several ranks fail at the same time, Speaks chooses
// the one that reports its error. A nil Mates watches nothing.
type Mates struct {
	rank int
	died func(rank int)
	over atomic.Bool
	met  chan struct{} // on the node's first rank: closed when all others have connected

	mu     sync.Mutex
	peers  []net.Conn
	failed []int // ranks that are about to report why they end the job
}

// The first letter of the message that a mate sends before it ends.
const (
	wordLeaves = 'l'
	// the number of the failing rank follows in eight digits; it may be another rank than the
	// sender, which passes the message on
	wordFails = 'f'
)

// Tests replace both functions. A rank that fails calls begin before it sends its message to the
// other ranks. Then it calls hear, which waits for messages of other ranks that fail at the same
// time. A short wait is enough, because sockets on one node are fast. In tests, begin waits for all
// ranks that fail at the same time, and hear waits for the messages themselves.
var (
	hear  = func(*Mates) { time.Sleep(100 * time.Millisecond) }
	begin = func() {}
)

// WatchMates begins to watch. When the first rank dies, one rank of the node calls onDeath with the
// number of the dead rank, in a goroutine. If the system is not Linux, or the node has no other
// ranks, nothing is watched. Collective: when it returns, all ranks watch, so no later death is
// missed.
func WatchMates(c Comm, onDeath func(rank int)) (*Mates, error) {
	door, own := openDoor(c.Rank())
	all, err := Allgatherv(c, own)
	if err != nil {
		return nil, err
	}
	var m *Mates
	if door != nil {
		m = meet(c.Rank(), door, own, all, onDeath)
	}
	alone, err := AgreeAny(c, m == nil)
	if err == nil && !alone && m.met != nil { // all mates will connect, so wait for them
		<-m.met
	}
	return m, err
}

// meet connects a rank with its mates. The first rank of the node accepts connections, and each
// other rank connects to it. meet returns nil if this fails.
func meet(rank int, door net.Listener, own []byte, all [][]byte, onDeath func(rank int)) *Mates {
	node, _, _ := bytes.Cut(own, []byte("\n"))
	var here []int
	for r, text := range all {
		if bytes.HasPrefix(text, append(slices.Clone(node), '\n')) {
			here = append(here, r)
		}
	}
	m := &Mates{rank: rank, died: onDeath}
	if rank == here[0] {
		m.met = make(chan struct{})
		go m.receive(door, own, len(here)-1)
		return m
	}
	_ = door.Close()
	first := bytes.Split(all[here[0]], []byte("\n"))
	peer, err := net.Dial("unix", string(first[1]))
	if err != nil { // in this case no rank watches this one
		return nil
	}
	if _, err = fmt.Fprintf(peer, "%s\n%8d", first[2], rank); err != nil {
		return nil
	}
	m.peers = []net.Conn{peer}
	go m.follow(peer, here[0], rank == here[1])
	return m
}

// openDoor listens for the mates of a rank, and returns a text of three lines, which they need to
// connect: node, address and password. Both results are nil if it cannot listen.
func openDoor(rank int) (door net.Listener, card []byte) {
	// The network namespace in which the address is valid.
	space, err := os.Readlink("/proc/self/ns/net")
	if err != nil || runtime.GOOS != "linux" {
		return nil, nil
	}
	// two nodes may have the same host name and namespace number; then the ranks fail to connect
	host, _ := os.Hostname()
	address := fmt.Sprintf("@halognn-%d-%d-%d", os.Getpid(), rank, time.Now().UnixNano())
	if door, err = net.Listen("unix", address); err != nil {
		return nil, nil
	}
	return door, []byte(strings.Join([]string{host + " " + space, address, rand.Text()}, "\n"))
}

// receive accepts connections until the given number of mates have sent the password, and watches
// each mate.
func (m *Mates) receive(door net.Listener, card []byte, mates int) {
	defer close(m.met)
	defer door.Close()
	password := card[bytes.LastIndexByte(card, '\n')+1:]
	for mates > 0 {
		peer, err := door.Accept()
		if err != nil {
			return
		}
		var rank int
		hello := make([]byte, len(password)+9)
		_ = peer.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadFull(peer, hello); err != nil || !bytes.HasPrefix(hello, password) {
			_ = peer.Close()
			continue
		}
		_ = peer.SetReadDeadline(time.Time{})
		if _, err := fmt.Sscan(string(hello[len(password):]), &rank); err != nil {
			_ = peer.Close()
			mates-- // only a mate knows the password, and each mate connects once
			continue
		}
		mates--
		m.mu.Lock()
		m.peers = append(m.peers, peer)
		m.mu.Unlock()
		go m.follow(peer, rank, true)
	}
}

// follow reads the messages of a mate until it ends. If it ends without a message, follow calls
// Mates.died, but only if `reports` is true.
func (m *Mates) follow(peer net.Conn, rank int, reports bool) {
	word := make([]byte, 9)
	for {
		switch n, _ := io.ReadFull(peer, word[:1]); {
		case n == 0:
			if !m.over.Swap(true) && reports {
				m.died(rank)
			}
			return
		case word[0] == wordLeaves:
			m.Leave() // so that the others end in order too
			return
		}
		of := 0
		if _, err := io.ReadFull(peer, word[1:]); err != nil {
			return
		}
		if _, err := fmt.Sscan(string(word[1:]), &of); err != nil {
			return
		}
		m.fails(of, peer)
	}
}

// fails records that a rank is about to report why it ends the job. It passes this news on to all
// peers except the one that sent the news (`from`; nil if this rank itself fails).
func (m *Mates) fails(rank int, from net.Conn) {
	m.over.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = append(m.failed, rank)
	for _, peer := range m.peers {
		if peer != from {
			// A mate that is gone needs no message.
			_, _ = fmt.Fprintf(peer, "%c%8d", wordFails, rank)
		}
	}
}

// Speaks reports whether this rank, which fails, should report its error. It should not if a mate
// already does, or if a rank with a lower number fails at the same time. Speaks ends the watch, as
// Leave does. Any goroutine may call it.
func (m *Mates) Speaks() bool {
	if m == nil {
		return true
	}
	m.mu.Lock()
	late, alone := len(m.failed) > 0, len(m.peers) == 0
	m.mu.Unlock()
	if late || alone {
		return !late
	}
	begin()
	m.fails(m.rank, nil)
	hear(m)
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Min(m.failed) == m.rank
}

// Leave tells the mates that this process is about to end in order, so that they stop watching. Any
// goroutine may call it.
func (m *Mates) Leave() {
	if m == nil {
		return
	}
	m.over.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, peer := range m.peers {
		_, _ = peer.Write([]byte{wordLeaves})
	}
	m.peers = nil
}
