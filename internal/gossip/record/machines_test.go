package record

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// told has m1 tell others of Machines, and returns the messages.
func told(t *testing.T, o *Own, gs model.GroupState) [][]byte {
	t.Helper()
	part, ok := o.Update(&gs)
	if !ok {
		t.Fatal("nothing is told")
	}
	msgs := Chunks(FormatBinary, part)
	for _, m := range msgs {
		if len(m) > MaxPacket {
			t.Errorf("a message of %d bytes", len(m))
		}
	}
	return msgs
}

func TestMachinesAreTold(t *testing.T) {
	o := NewOwn("m2", time.Now(), 1, "v", nil)
	tab := NewTable("m1")
	take := func(msgs [][]byte) model.Member {
		t.Helper()
		return take(t, tab, msgs).Members["m2"]
	}
	drain := model.MachineDrain{Machine: "ns/cp-1", Node: "m3", Reason: "Deleting", Detail: "since noon"}
	first := told(t, o, model.GroupState{Manager: true, Drained: true, Drains: []model.MachineDrain{drain}})
	m := take(first)
	if !m.Manager || m.Partial || !m.Drained || !model.SameDrains(m.Drains, []model.MachineDrain{drain}) {
		t.Errorf("told: %+v", m)
	}
	// It is passed on with everything else.
	if r, _ := tab.All("m2", time.Now()); r.Machines == nil || len(r.Machines.Drains) != 1 {
		t.Errorf("passed on: %+v", r.Machines)
	}
	// Of one that loses some addresses only they are told too.
	some := drain
	some.Reason, some.Only = "Disabled", []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	if m = take(told(t, o, model.GroupState{Manager: true, Drains: []model.MachineDrain{some}})); !model.SameDrains(m.Drains, []model.MachineDrain{some}) {
		t.Errorf("told of two addresses: %+v", m)
	}
	for i := range 2 * maxOnly {
		some.Only = append(some.Only, netip.AddrFrom4([4]byte{192, 0, 2, byte(2 + i)}))
	}
	if m = take(told(t, o, model.GroupState{Manager: true, Drains: []model.MachineDrain{some}})); !m.Partial || len(m.Drains) != 1 || len(m.Drains[0].Only) != maxOnly {
		t.Errorf("told of too many addresses: %+v", m)
	}
	some.Only = some.Only[:maxOnly]
	if m = take(told(t, o, model.GroupState{Manager: true, Drains: []model.MachineDrain{some}})); m.Partial || len(m.Drains) != 1 || len(m.Drains[0].Only) != maxOnly {
		t.Errorf("told of as many as there may be: %+v", m)
	}
	over := told(t, o, model.GroupState{Manager: true})
	if m = take(over); !m.Manager || m.Drained || len(m.Drains) != 0 {
		t.Errorf("over: %+v", m)
	}
	// What was on its way for longer is not news.
	if m = take(first); len(m.Drains) != 0 || m.Drained {
		t.Errorf("an old message: %+v", m)
	}
	if m = take(told(t, o, model.GroupState{})); m.Manager {
		t.Errorf("no manager any more: %+v", m)
	}
	if _, ok := o.Update(&model.GroupState{}); ok {
		t.Error("told without news")
	}
}

// A node that has just started knows nothing yet of any Machine.
func TestMachinesOfAFormerLife(t *testing.T) {
	tab := NewTable("m1")
	say := func(r Record) model.Member { return take(t, tab, [][]byte{r.Encode(FormatBinary)}).Members["m2"] }
	machines := &Machines{V: 7, Manager: true, Drains: []Drain{{Machine: "ns/a", Node: "m3"}}}
	if m := say(Record{Name: "m2", Inc: 1, Seq: 7, Machines: machines}); !m.Manager || len(m.Drains) != 1 {
		t.Fatalf("%+v", m)
	}
	if m := say(Record{Name: "m2", Inc: 2, Seq: 1, Head: &Head{V: 1}}); m.Manager || len(m.Drains) != 0 {
		t.Errorf("after the restart: %+v", m)
	}
	if m := say(Record{Name: "m2", Inc: 2, Seq: 2, Machines: &Machines{V: 2, Manager: true}}); !m.Manager {
		t.Errorf("it reads again: %+v", m)
	}
}

// However many Machines drain, what is told of them fits into one datagram, the first
// of them are in it, and it says that it is not all.
func TestMachinesFitIntoADatagram(t *testing.T) {
	for _, c := range []struct {
		name    string
		count   int
		self    int // length of the name
		long    string
		partial bool
		least   int
	}{
		{"few", 5, 10, "", false, 5},
		{"many", 500, 10, "", true, 6},
		{"the longest", 2, MaxName, strings.Repeat("x", MaxName-9), true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var drains []model.MachineDrain
			for i := range c.count {
				drains = append(drains, model.MachineDrain{
					Machine: fmt.Sprintf("default/control-plane-%04d", i), Node: model.NodeName(fmt.Sprintf("node-%04d%s", i, c.long)),
					Reason: "Deleting" + c.long, Detail: "since noon" + strings.Repeat("é", len(c.long)),
				})
			}
			o := NewOwn(model.NodeName(strings.Repeat("n", c.self)), time.Now(), 1, "v", nil)
			told(t, o, model.GroupState{Manager: true, Drains: drains})
			m := o.Full().Machines
			if m.Partial != c.partial || len(m.Drains) < c.least || !m.Manager {
				t.Fatalf("%d of %d are told, partial %v", len(m.Drains), c.count, m.Partial)
			}
			if m.Drains[0].Machine != drains[0].Machine || len(m.Drains[0].Detail) > maxDetail {
				t.Errorf("first %+v", m.Drains[0])
			}
			if err := m.check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Words that take much room when they are written down leave out themselves, not the Machine
// that they are about.
func TestMachineOfManyWordsIsTold(t *testing.T) {
	escaped := func(n int) string { return strings.Repeat("<", n) } // six bytes each
	drain := model.MachineDrain{
		Machine: strings.Repeat("m", maxMachine), Node: "cp-1", Reason: escaped(maxWord), Detail: escaped(maxDetail),
	}
	m := encodeDrains("cp-2", true, []model.MachineDrain{drain})
	t.Logf("with all words it takes %d bytes of %d", (&Drain{Machine: drain.Machine, Node: string(drain.Node), Reason: drain.Reason, Detail: drain.Detail}).size(), MaxPacket)
	if len(m.Drains) != 1 || m.Partial || m.Drains[0].Machine != drain.Machine || m.Drains[0].Reason != "" || m.Drains[0].Detail != "" {
		t.Errorf("told: %d, partial %v", len(m.Drains), m.Partial)
	}
}
