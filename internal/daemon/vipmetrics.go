package daemon

import (
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"lbd.dev/lbd/internal/model"
)

// The metrics with series for each VIP. There are few of them, and only of what
// holds now: with thousands of VIPs each one is as large as all else together.
var (
	descOwner    = prometheus.NewDesc("lbd_vip_owner", "1 if this node owns the VIP.", vipLabels, nil)
	descAnn      = prometheus.NewDesc("lbd_vip_announced", "1 if this node has bound the VIP and announces it.", vipLabels, nil)
	descHealthy  = prometheus.NewDesc("lbd_vip_healthy", "1 if the health check of the VIP passes on this node.", vipLabels, nil)
	descDegraded = prometheus.NewDesc("lbd_vip_degraded", "1 if this node may have the VIP, but does not pass the preferred health check.", vipLabels, nil)
	descReason   = prometheus.NewDesc("lbd_vip_reason", "1 for the reason why the VIP is, or is not, on this node.", append(vipLabels[:3:3], "reason"), nil)
	descClash    = prometheus.NewDesc("lbd_vip_conflicts_total", "Frames in which a foreign host used the VIP while it was announced here; from the first one on.", vipLabels[:2], nil)
	descDouble   = prometheus.NewDesc("lbd_vip_duplicate", "1 while another host answers for the VIP beside its owner; absent otherwise.", vipLabels[:2], nil)
	descMoved    = prometheus.NewDesc("lbd_vip_transitions_total", "Changes of owner or reason of a VIP as this node sees it.", vipLabels, nil)
	descMovedTo  = prometheus.NewDesc("lbd_transitions_total", "Changes of owner or reason of all VIPs as this node sees them, by the new reason; from the first one on.", []string{"mode", "reason"}, nil)

	vipLabels = []string{"vip", "address", "mode"}
)

// announced names one VIP in one mode.
type announced struct {
	addr netip.Addr
	bgp  bool
}

// outcome is a reason in one mode.
type outcome struct {
	mode   string
	reason model.Reason
}

// tally counts transitions. It holds no labels: those of thousands of VIPs are made
// at scrape.
type tally struct {
	mu   sync.Mutex
	vips map[announced]uint64
	by   map[outcome]uint64
}

// count notes that the owner or the reason of a VIP has changed.
func (t *tally) count(s *model.VIPStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.vips == nil {
		t.vips, t.by = make(map[announced]uint64), make(map[outcome]uint64)
	}
	t.vips[announced{s.VIP.Addr, s.BGP}]++
	t.by[outcome{mode(s), s.Reason}]++
}

// forget drops a VIP that is not configured any more.
func (t *tally) forget(s *model.VIPStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.vips, announced{s.VIP.Addr, s.BGP})
}

// sample is one value whose labels are shared with other samples of the same VIP.
type sample struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair // sorted by name
	kind   prometheus.ValueType
	value  float64
}

func (s *sample) Desc() *prometheus.Desc { return s.desc }

func (s *sample) Write(out *dto.Metric) error {
	out.Label = s.labels
	if s.kind == prometheus.CounterValue {
		out.Counter = &dto.Counter{Value: &s.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}

// vipCollector collects the series of all VIPs.
type vipCollector struct{ m *metrics }

// Describe implements prometheus.Collector. It describes nothing, so that the
// registry does not compare each of thousands of series with a description.
func (vipCollector) Describe(chan<- *prometheus.Desc) {}

func (v vipCollector) Collect(c chan<- prometheus.Metric) {
	s := v.m.now.Load()
	if s == nil {
		return
	}
	t := &v.m.moved
	t.mu.Lock()
	moved := make([]uint64, len(s.status))
	for i := range s.status {
		moved[i] = t.vips[announced{s.status[i].VIP.Addr, s.status[i].BGP}]
	}
	for k, n := range t.by {
		c <- prometheus.MustNewConstMetric(descMovedTo, prometheus.CounterValue, float64(n), k.mode, k.reason.String())
	}
	t.mu.Unlock()
	for i := range s.status {
		s.collect(c, &s.status[i], moved[i])
	}
}

// collect writes the series of one VIP.
func (s *snapshot) collect(c chan<- prometheus.Metric, v *model.VIPStatus, moved uint64) {
	address, how, name := label("address", v.VIP.Addr.String()), label("mode", mode(v)), label("vip", v.VIP.Name)
	labels := []*dto.LabelPair{address, how, name}
	send := func(d *prometheus.Desc, kind prometheus.ValueType, x float64, labels []*dto.LabelPair) {
		c <- &sample{d, labels, kind, x}
	}
	send(descOwner, prometheus.GaugeValue, number(v.Owner == s.self), labels)
	send(descAnn, prometheus.GaugeValue, number(v.Announced), labels)
	send(descHealthy, prometheus.GaugeValue, number(v.Healthy), labels)
	if v.VIP.Check != "" {
		send(descDegraded, prometheus.GaugeValue, number(v.Standing == model.ReasonDegraded), labels)
	}
	send(descReason, prometheus.GaugeValue, 1, []*dto.LabelPair{address, how, label("reason", v.Reason.String()), name})
	send(descMoved, prometheus.CounterValue, float64(moved), labels)
	if v.Duplicate != "" && !v.BGP {
		send(descDouble, prometheus.GaugeValue, 1, []*dto.LabelPair{address, name})
	}
	if n := s.layer2[v.VIP.Addr].Conflicts; n > 0 && !v.BGP {
		send(descClash, prometheus.CounterValue, float64(n), []*dto.LabelPair{address, name})
	}
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }
