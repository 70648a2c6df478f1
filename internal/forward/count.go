package forward

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/google/nftables"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
	"lbd.dev/lbd/internal/sockdiag"
)

// Counted is a server, as it is counted: whichever VIP leads there.
type Counted struct {
	Server   netip.AddrPort
	Protocol model.Protocol
}

// Count is what the kernel has counted for one.
type Count struct {
	// Opened are the connections that this node has sent there, its own among them, and those
	// that it has taken up from another node.
	Opened uint64
	// Received and Sent are the bytes that were forwarded to the server, and from it. Those of
	// connections of this node itself are not among them.
	Received, Sent uint64
}

// Way is how connections reach a server.
type Way struct {
	VIP netip.Addr
	Counted
}

// Counts is what Count returns.
type Counts struct {
	// Servers are at most maxCounted of each family; Uncounted is how many services have a server
	// that is not among them.
	Servers   map[Counted]Count
	Uncounted int
	// Open are the connections that are open, and that this node knows, to servers that are not
	// counted, too.
	Open map[Way]int
	// HalfOpen are those of Open of TCP whose client has not answered the server yet.
	HalfOpen map[Counted]int
	// Ports are those that connections to a server have taken of the source that it sees, if that is
	// not the client.
	Ports map[Source]Ports
}

// has tells whether the server of a connection is counted.
func (c *Counts) has(e *sockdiag.Entry) bool {
	_, is := c.Servers[Counted{e.Server, model.Protocol(e.Protocol)}]
	return is
}

// add counts a connection that this node knows.
func (c *Counts) add(e *sockdiag.Entry) {
	to := Counted{e.Server, model.Protocol(e.Protocol)}
	halfOpen := to.Protocol == model.TCP && !e.Assured && !e.Ended
	if !e.Ended {
		c.Open[Way{e.To.Addr(), to}]++
	}
	if halfOpen {
		c.HalfOpen[to]++
	}
	if from := (Source{e.Seen.Addr(), to}); from.Addr != e.From.Addr() {
		p := c.Ports[from]
		p.Taken++
		if halfOpen {
			p.HalfOpen++
		}
		c.Ports[from] = p
	}
}

// patienceOfScrape bounds how long the kernel is asked for the counters.
const patienceOfScrape = 5 * time.Second

// The kernel lists all connections that it tracks, half a microsecond each. They are listed again
// once the list is so many times as old as it took to make, so that however often somebody
// asks, it takes a twentieth of a processor at most.
const rest = 20

// counter reads what the kernel counts, for whoever asks. It has a session of its own, and
// neither waits for the driver nor makes it wait.
type counter struct {
	mu      sync.Mutex
	session *nft.Session
	last    Counts
	failed  error     // why last is not complete
	next    time.Time // not sooner is the kernel asked again

	known     sync.Mutex // for a moment only
	there     [len(families)]bool
	vips      [len(families)]map[netip.Addr]origin // never changed; nil: those of an earlier process
	uncounted int
	closed    bool
}

// tell notes what there is to be read.
func (d *Driver) tell() {
	d.counts.known.Lock()
	defer d.counts.known.Unlock()
	d.counts.uncounted = 0
	for f := range d.tables {
		t := &d.tables[f]
		d.counts.there[f], d.counts.vips[f] = t.state == there || t.inherited != nil, nil
		if t.image != nil {
			d.counts.vips[f] = t.image.vips
			d.counts.uncounted += t.image.uncounted
		}
	}
}

// Count asks the kernel what went to the servers and what is open. It may be called
// concurrently with all other methods, waits for none of them, and tells what it has told
// before if the kernel was asked a moment ago.
func (d *Driver) Count() (Counts, error) {
	c := &d.counts
	c.known.Lock()
	known, vips, uncounted := c.there, c.vips, c.uncounted
	c.known.Unlock()
	c.mu.Lock()
	defer func() {
		c.mu.Unlock()
		if c.isClosed() { // meanwhile, which waited for nobody
			_ = c.end()
		}
	}()
	if c.isClosed() {
		return Counts{}, errClosed
	}
	begin := time.Now()
	if begin.Before(c.next) {
		return c.last, c.failed
	}
	out := Counts{Servers: make(map[Counted]Count), Open: make(map[Way]int), HalfOpen: make(map[Counted]int), Ports: make(map[Source]Ports), Uncounted: uncounted}
	var errs []error
	for f, is := range known {
		if is {
			errs = append(errs, c.read(&families[f], out.Servers))
		}
	}
	if known != [len(families)]bool{} {
		errs = append(errs, sockdiag.Forwarded(func(e sockdiag.Entry) {
			if _, ours := vips[familyOf(e.To.Addr())][e.To.Addr()]; ours || out.has(&e) {
				out.add(&e)
			}
		}))
	}
	now := time.Now()
	c.last, c.failed, c.next = out, errors.Join(errs...), now.Add(rest*now.Sub(begin))
	return c.last, c.failed
}

// read adds the counters of a family.
func (c *counter) read(f *family, to map[Counted]Count) error {
	if c.session == nil {
		c.session = nft.New(patienceOfScrape)
	}
	return c.session.Do(func(conn *nftables.Conn) error {
		for _, number := range []int{setOpened, setReceived, setSent} {
			elements, err := conn.GetSetElements(f.set(number))
			if err != nil {
				return err
			}
			for _, e := range elements {
				at, ok := counted(e.Key)
				if !ok || e.Counter == nil {
					continue
				}
				n := to[at]
				switch number {
				case setOpened:
					n.Opened = e.Counter.Packets
				case setReceived:
					n.Received = e.Counter.Bytes
				case setSent:
					n.Sent = e.Counter.Bytes
				}
				to[at] = n
			}
		}
		return nil
	})
}

// counted reads a key that end made.
func counted(key []byte) (c Counted, ok bool) {
	const behind = 8 // protocol and port, four bytes each
	if len(key) < behind {
		return c, false
	}
	address, key := key[:len(key)-behind], key[len(key)-behind:]
	a, ok := netip.AddrFromSlice(address)
	return Counted{netip.AddrPortFrom(a, binary.BigEndian.Uint16(key[4:])), model.Protocol(key[0])}, ok
}

var errClosed = errors.New("forward: the driver is closed")

func (c *counter) isClosed() bool {
	c.known.Lock()
	defer c.known.Unlock()
	return c.closed
}

// close has the session end, at once or when nobody uses it any more.
func (c *counter) close() error {
	c.known.Lock()
	c.closed = true
	c.known.Unlock()
	return c.end()
}

// end closes the session unless somebody uses it, who does so then.
func (c *counter) end() error {
	if !c.mu.TryLock() {
		return nil
	}
	defer c.mu.Unlock()
	if c.session == nil {
		return nil
	}
	s := c.session
	c.session = nil
	return s.Close()
}
