package layer2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/model"
)

var (
	client4 = netip.MustParseAddr("10.0.0.9")
	client6 = netip.MustParseAddr("fe80::9")
)

// whoHas is a request of a client for addr, to all.
func whoHas(addr netip.Addr) []byte {
	if addr.Is4() {
		b := arp.Probe(rivalMAC, addr)
		copy(b[arp.OffsetSPA:], client4.AsSlice())
		return b
	}
	return nd.Probe(rivalMAC, client6, addr, nd.Nonce{7})
}

// to sends a frame to one host.
func to(mac model.MAC, frame []byte) []byte {
	b := bytes.Clone(frame)
	copy(b, mac[:])
	return b
}

// isAt is the answer to whoHas.
func isAt(addr netip.Addr) []byte {
	if addr.Is4() {
		return arp.Reply(ownMAC, addr, arp.Packet{SHA: rivalMAC, SPA: client4})
	}
	return nd.Reply(ownMAC, addr, false, nd.Message{Source: client6, MAC: rivalMAC})
}

// answers are the frames sent that announce nothing.
func (h *harness) answers() (out [][]byte) {
	for _, e := range h.k.sent() {
		if e.frame[0]&1 == 0 || e.frame[12] == 8 && e.frame[21] == byte(arp.OpReply) {
			out = append(out, e.frame)
		}
	}
	return out
}

// standStill is what the driver finds after the process has not run for so long.
func (h *harness) standStill(d time.Duration) {
	h.d.clock.mu.Lock()
	defer h.d.clock.mu.Unlock()
	h.d.clock.ran = h.d.clock.ran.Add(-d)
}

func responding(t *testing.T, f func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(respondVIP(vip4), respondVIP(vip6))
		f(h)
	})
}

func TestResponds(t *testing.T) {
	probe4 := arp.Reply(ownMAC, vip4, arp.Packet{SHA: rivalMAC, SPA: netip.IPv4Unspecified()})
	for name, tc := range map[string]struct{ ask, want []byte }{
		"request":               {whoHas(vip4), isAt(vip4)},
		"request to this host":  {to(ownMAC, whoHas(vip4)), isAt(vip4)},
		"probe":                 {arp.Probe(rivalMAC, vip4), probe4},
		"solicitation":          {whoHas(vip6), isAt(vip6)},
		"unicast solicitation":  {to(ownMAC, whoHas(vip6)), isAt(vip6)},
		"request to another":    {to(otherMAC, whoHas(vip4)), nil},
		"solicit another":       {to(otherMAC, whoHas(vip6)), nil},
		"another address":       {whoHas(vip4b), nil},
		"announcement":          {arp.Announcement(rivalMAC, vip4), nil},
		"reply":                 {arp.Reply(rivalMAC, vip4b, arp.Packet{SHA: ownMAC, SPA: vip4}), nil},
		"advertisement":         {nd.Announce(rivalMAC, vip6, false), nil},
		"from this host":        {to(ownMAC, arp.Probe(ownMAC, vip4)), nil},
		"from a group":          {arp.Probe(model.MAC{1, 2, 3}, vip4), nil},
		"cut off":               {whoHas(vip4)[:arp.FrameLen-1], nil},
		"shorter than a header": {[]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 6}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			responding(t, func(h *harness) {
				h.k.hear(tc.ask)
				got := h.answers()
				if tc.want == nil && len(got) != 0 || tc.want != nil && (len(got) != 1 || !bytes.Equal(got[0], tc.want)) {
					t.Errorf("got %x, want %x", got, tc.want)
				}
			})
		})
	}
}

// A host that is about to use the address gets its answer by all nodes.
func TestRespondsToDuplicateAddressDetection(t *testing.T) {
	responding(t, func(h *harness) {
		ask := nd.Probe(rivalMAC, netip.IPv6Unspecified(), vip6, nd.Nonce{})
		ask = ask[:len(ask)-16]                                      // no options
		binary.BigEndian.PutUint16(ask[18:], uint16(len(ask)-14-40)) // length
		ask = mend(ask)
		n := len(h.k.sent())
		h.k.hear(ask)
		sent := h.k.sent()[n:]
		if len(sent) != 1 || !bytes.Equal(sent[0].frame, nd.Announce(ownMAC, vip6, false)) {
			t.Errorf("sent %v", sent)
		}
	})
}

// mend makes the checksum of an ND frame right.
func mend(frame []byte) []byte {
	icmp := frame[54:]
	icmp[2], icmp[3] = 0, 0
	sum := uint32(len(icmp)) + nd.ProtocolICMPv6
	for _, b := range [][]byte{frame[22:54], icmp} {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(icmp[2:], ^uint16(sum))
	return frame
}

// In no other mode, and for nothing that the kernel answers for.
func TestRespondsOnlyWhenAsked(t *testing.T) {
	onOther := respondVIP(vip4)
	onOther.Interface = "eth1"
	for name, l2 := range map[string][]model.L2Advert{
		"bound":           {announceVIP(vip4), announceVIP(vip6)},
		"probing":         {probeVIP(vip4, 1), probeVIP(vip6, 1)},
		"silent":          {silentVIP(vip4), silentVIP(vip6), respondVIP(vip4b)},
		"gone":            {respondVIP(vip4b)},
		"other interface": {onOther, respondVIP(vip4b)},
	} {
		t.Run(name, func(t *testing.T) {
			responding(t, func(h *harness) {
				h.k.ifs["eth1"] = Link{Name: "eth1", Index: 3, MAC: otherMAC, Up: true, Carrier: true}
				h.apply(l2...)
				h.k.hear(whoHas(vip4))
				if p := h.k.ports[portKey{"eth0", familyOf(vip6)}]; p != nil {
					p.ev.Frame(whoHas(vip6))
				}
				if got := h.answers(); len(got) != 0 {
					t.Errorf("answered %x", got)
				}
			})
		})
	}
}

func TestRespondsWhileTheDecisionIsValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.valid = 1500 * ms
		h.apply(respondVIP(vip4))
		time.Sleep(1499 * ms)
		h.k.hear(whoHas(vip4))
		time.Sleep(ms)
		h.k.hear(whoHas(vip4))
		if n := len(h.answers()); n != 1 {
			t.Errorf("%d answers, want 1", n)
		}
		h.apply(respondVIP(vip4))
		h.k.hear(whoHas(vip4))
		if n := len(h.answers()); n != 2 {
			t.Errorf("%d answers after the next decision, want 2", n)
		}
		if s := h.d.Stats(); s.Answers != 2 || s.Lapses != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A process that stood still for a while answers and announces nothing until a
// decision knows of it, whatever comes first: a frame, the timer or a decision.
func TestLapse(t *testing.T) {
	for name, first := range map[string]func(h *harness){
		"frame":    func(h *harness) { h.k.hear(whoHas(vip4)) },
		"timer":    func(h *harness) { time.Sleep(100 * ms) },
		"decision": func(h *harness) { h.apply(respondVIP(vip4)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				h.apply(respondVIP(vip4))
				time.Sleep(time.Minute) // it looks at the clock all the time
				h.changed()
				if h.d.Stats().Lapses != 0 {
					t.Fatal("lapsed although it ran")
				}
				n := len(h.k.sent())
				h.standStill(defaultStandstill + standstillMore)
				first(h)
				if !h.changed() {
					t.Error("Changed did not fire")
				}
				a, err := h.try(respondVIP(vip4))
				if got := a.VIPs[vip4]; err != nil || got.Announcing || got.Err == "" || a.Lapses != 1 {
					t.Errorf("%v, report %+v", err, a)
				}
				again := respondVIP(vip4)
				again.Burst = 7
				_, _ = h.try(again) // a decision that does not know
				h.k.hear(whoHas(vip4))
				time.Sleep(time.Minute)
				if got := len(h.k.sent()) - n; got != 0 {
					t.Errorf("%d frames after it stood still", got)
				}
				h.lapses = 1
				if got := h.apply(again)[vip4]; !got.Announcing || got.Err != "" {
					t.Errorf("report %+v", got)
				}
				h.k.hear(whoHas(vip4))
				if got := len(h.k.sent()) - n; got != 2 {
					t.Errorf("%d frames of a decision that knows, want 2", got)
				}
			})
		})
	}
}

// Not so long that another node could have taken it, or nothing to answer for.
func TestNoLapse(t *testing.T) {
	responding(t, func(h *harness) {
		h.standStill(defaultStandstill)
		h.k.hear(whoHas(vip4))
		if len(h.answers()) != 1 || h.d.Stats().Lapses != 0 {
			t.Errorf("%d answers, stats %+v", len(h.answers()), h.d.Stats())
		}
		h.apply(announceVIP(vip4))
		h.standStill(time.Hour)
		time.Sleep(time.Second)
		h.apply(announceVIP(vip4), respondVIP(vip6))
		h.k.hear(whoHas(vip6))
		if h.d.Stats().Lapses != 0 || len(h.answers()) != 2 {
			t.Errorf("%d answers, stats %+v", len(h.answers()), h.d.Stats())
		}
	})
}

// What rests on a silence, or a consent, that does not hold any more is not begun;
// what has begun goes on.
func TestStartBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		late := respondVIP(vip4)
		late.StartBefore, late.Burst = time.Now().Add(100*ms), 3
		time.Sleep(101 * ms)
		for range 2 {
			if got := h.apply(late)[vip4]; !got.TooLate || got.Announcing || got.Err == "" {
				t.Errorf("report %+v", got)
			}
			late.StartBefore = time.Time{} // a decision that rests on the same
		}
		h.k.hear(whoHas(vip4))
		if n := len(h.k.sent()); n != 0 {
			t.Errorf("%d frames", n)
		}
		late.StartBefore, late.Burst = time.Now().Add(100*ms), 4
		if got := h.apply(late)[vip4]; got.TooLate || !got.Announcing || got.Err != "" {
			t.Errorf("report %+v", got)
		}
		time.Sleep(time.Second)
		late.Burst = 5
		if got := h.apply(late)[vip4]; got.TooLate || !got.Announcing {
			t.Errorf("report %+v", got)
		}
		if got := h.apply(probeVIP(vip4, 1))[vip4]; got.TooLate {
			t.Errorf("report %+v", got)
		}
	})
}

// A flood gets so many answers a second; the others do not suffer until it is too
// many for all.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		var all []model.L2Advert
		a := netip.MustParseAddr("10.1.0.0")
		for range maxAnswersAll/maxAnswers + 2 {
			a = a.Next()
			all = append(all, respondVIP(a))
		}
		h.apply(all...)
		flood := func(a netip.Addr) int {
			n := len(h.answers())
			for range maxAnswers + 10 {
				h.k.hear(whoHas(a))
			}
			return len(h.answers()) - n
		}
		for i, w := range all {
			want := maxAnswers
			if i >= maxAnswersAll/maxAnswers {
				want = 0
			}
			if got := flood(w.Addr); got != want {
				t.Errorf("VIP %d: %d answers, want %d", i, got, want)
			}
		}
		time.Sleep(time.Second)
		if got := flood(all[0].Addr); got != maxAnswers {
			t.Errorf("a second later %d answers", got)
		}
		if s := h.d.Stats(); s.Answers != maxAnswersAll+maxAnswers || s.Dropped != 13*(maxAnswers+10)-s.Answers {
			t.Errorf("stats %+v", s)
		}
	})
}

// Solicitations come to the groups of what is answered for.
func TestGroupsOfResponders(t *testing.T) {
	responding(t, func(h *harness) {
		want := Group{2, nd.SolicitedNode(vip6)}
		if _, ok := h.k.joined[want]; !ok || len(h.k.joined) != 1 {
			t.Errorf("joined %v", h.k.joined)
		}
		h.k.closed = errors.New("too many")
		a, err := h.try(respondVIP(vip6))
		if err == nil || !strings.Contains(a.Err, "too many") || !a.VIPs[vip6].Announcing {
			t.Errorf("%v, report %+v", err, a)
		}
		h.apply(announceVIP(vip6))
		if len(h.k.joined) != 0 {
			t.Errorf("joined %v", h.k.joined)
		}
	})
}

// A VIP that yields needs no rules of nftables to fall silent.
func TestRespondsWithoutSilence(t *testing.T) {
	responding(t, func(h *harness) {
		yields := respondVIP(vip4)
		yields.Yield = true
		h.apply(yields, respondVIP(vip6))
		h.k.hear(whoHas(vip4))
		if n := h.s[0].prepares + h.s[1].prepares; n != 0 || len(h.answers()) != 1 {
			t.Errorf("prepared %d times, %d answers", n, len(h.answers()))
		}
	})
}

// A socket that cannot send is counted, and mended by the next announcement.
func TestAnswerFails(t *testing.T) {
	responding(t, func(h *harness) {
		h.k.sending(func([]byte) error { return errors.New("no") })
		h.k.hear(whoHas(vip4))
		if s := h.d.Stats(); s.Answers != 0 || s.Errors != 1 {
			t.Errorf("stats %+v", s)
		}
		h.k.sending(nil)
		h.apply(respondVIP(vip4))
		h.k.hear(whoHas(vip4))
		if s := h.d.Stats(); s.Answers != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Ranges, two or more, cover all values, are as few as asked for, and leave out the widest gaps.
func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfNDistinct(rapid.Uint32(), 1, 60, rapid.ID).Draw(t, "values")
		if rapid.Bool().Draw(t, "dense") {
			values = rapid.SliceOfNDistinct(rapid.Uint32Range(100, 200), 1, 60, rapid.ID).Draw(t, "values")
		}
		most := rapid.IntRange(2, 9).Draw(t, "most")
		slices.Sort(values)
		got := spans(values, most)
		if len(got) > most {
			t.Fatalf("%d ranges, want %d at most", len(got), most)
		}
		in := make(map[int]bool)
		var left []uint32
		for i, s := range got {
			if s.low > s.high || i > 0 && s.low <= got[i-1].high+1 {
				t.Fatalf("ranges %v", got)
			}
			if i > 0 {
				left = append(left, s.low-got[i-1].high)
			}
			for k, v := range values {
				in[k] = in[k] || v >= s.low && v <= s.high
			}
			if !slices.Contains(values, s.low) || !slices.Contains(values, s.high) {
				t.Fatalf("range %v does not end with a value", s)
			}
		}
		var gaps []uint32
		for i, v := range values[1:] {
			if gap := v - values[i]; gap > 1 {
				gaps = append(gaps, gap)
			}
		}
		slices.Sort(gaps)
		slices.Sort(left)
		if want := gaps[max(0, len(gaps)-most+1):]; !slices.Equal(left, want) {
			t.Fatalf("left out %v, want %v", left, want)
		}
		for k, v := range values {
			if !in[k] {
				t.Fatalf("%d is not in %v", v, got)
			}
		}
	})
}

// A decision that is merely prolonged is answered by, unless there is something to
// put right.
func TestRespondsExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.valid = time.Second
		h.apply(respondVIP(vip4))
		time.Sleep(900 * ms)
		if !h.d.Extend(time.Now().Add(time.Second)) {
			t.Fatal("not extended")
		}
		time.Sleep(900 * ms)
		h.k.hear(whoHas(vip4))
		if n := len(h.answers()); n != 1 {
			t.Errorf("%d answers, want 1", n)
		}
		h.standStill(time.Second)
		if h.d.Extend(time.Now().Add(time.Second)) {
			t.Error("extended after it stood still")
		}
		h.k.hear(whoHas(vip4))
		if n := len(h.answers()); n != 1 {
			t.Errorf("%d answers, want 1", n)
		}
	})
}

// Who is busy with the network does not stand still.
func TestBusyIsNoLapse(t *testing.T) {
	responding(t, func(h *harness) {
		time.Sleep(5 * time.Second) // nothing is due for half a minute
		h.d.mu.Lock()
		time.Sleep(5 * time.Second)
		h.d.mu.Unlock()
		h.k.hear(whoHas(vip4))
		if n := len(h.answers()); n != 1 || h.d.Stats().Lapses != 0 {
			t.Errorf("%d answers, %+v", n, h.d.Stats())
		}
	})
}
