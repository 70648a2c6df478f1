package daemon

import (
	"net/netip"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/internal/model"
)

// metrics are those of decisions; adapters count their own work and are read at
// scrape by the collectors of cmd/lbd.
type metrics struct {
	moved     tally
	takeover  prometheus.Histogram
	decisions prometheus.Histogram
	stalls    prometheus.Counter
	now       atomic.Pointer[snapshot]
}

// snapshot is what the gauges show; it is replaced with every decision and never
// changed, so a scrape neither waits for the loop nor sees half a change.
type snapshot struct {
	self              model.NodeName
	status            []model.VIPStatus
	layer2            map[netip.Addr]model.AppliedVIP // as reported; nobody changes it
	members           map[model.MemberState]int
	failing           map[model.SinkName]bool
	peers             []model.PeerReport
	settled, draining bool
	machine           machineSnapshot
	// What the gauges of backends are made of, at scrape.
	loadBalancers []model.LoadBalancer
	balance       map[string]model.BalanceMemory
	health        map[string]model.HealthState
	learned       listenerSnapshot
	services      model.Services
}

// machineSnapshot is what the gauges say of Machines.
type machineSnapshot struct{ draining, manager, writer bool }

// The gauges.
var (
	descMachineDrain = prometheus.NewDesc("lbd_machine_draining", "1 while this node drains since its Machine is going away or was marked.", nil, nil)
	descManager      = prometheus.NewDesc("lbd_machines_manager", "1 while this node reads the API of a management cluster.", nil, nil)
	descWriter       = prometheus.NewDesc("lbd_machines_writer", "1 if this node writes to the management cluster for its group.", nil, nil)

	descMembers = prometheus.NewDesc("lbd_members", "Nodes of the group besides this one, by state.", []string{"state"}, nil)
	descDriver  = prometheus.NewDesc("lbd_driver_error", "1 while the driver reports an error.", []string{"driver"}, nil)
	descSettled = prometheus.NewDesc("lbd_settled", "1 if this node takes part in elections.", nil, nil)
	descKept    = prometheus.NewDesc("lbd_service_connections_kept", "1 if this node takes part in keeping open connections to Services when their addresses move.", nil, nil)
	descDrain   = prometheus.NewDesc("lbd_draining", "1 while this node hands everything over.", nil, nil)
)

func newMetrics(reg prometheus.Registerer, version string) *metrics {
	m := &metrics{
		takeover: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lbd_vip_takeover_seconds",
			Help:    "Time from missing the former owner until this node has announced the VIP.",
			Buckets: []float64{.01, .025, .05, .1, .15, .2, .3, .5, 1, 2, 3, 4, 5, 10}}),
		decisions: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lbd_decision_seconds",
			Help: "Duration of one decision.", Buckets: prometheus.ExponentialBuckets(1e-5, 4, 8)}),
		stalls: prometheus.NewCounter(prometheus.CounterOpts{Name: "lbd_stalls_total",
			Help: "Times the daemon did not run for longer than a second."}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lbd_build_info", Help: "Version of the program."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	reg.MustRegister(m.takeover, m.decisions, m.stalls, build, m, vipCollector{m})
	return m
}

// publish replaces what the gauges show.
func (m *metrics) publish(v *model.View, d *model.Desired) {
	s := &snapshot{
		self: v.Self, status: d.Status, settled: d.Memory.Settled, draining: draining(v, d),
		members:       map[model.MemberState]int{model.MemberAlive: 0, model.MemberDead: 0, model.MemberLeft: 0},
		failing:       make(map[model.SinkName]bool, len(v.Applied)),
		peers:         v.Applied[model.SinkBGP].Peers,
		layer2:        v.Applied[model.SinkLayer2].VIPs,
		machine:       machineSnapshot{d.Memory.Machine.Drain != nil, v.Machines.Manager, d.Machines.Writer},
		loadBalancers: v.LoadBalancers, balance: d.Memory.Balance, health: v.Health, learned: newListenerSnapshot(v, d), services: d.Services,
	}
	for _, p := range v.Gossip.Members {
		s.members[p.State]++
	}
	for n, a := range v.Applied {
		s.failing[n] = a.Err != ""
	}
	m.now.Store(s)
}

func (m *metrics) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descMembers, descDriver, descSettled, descDrain, descKept, descMachineDrain, descManager, descWriter,
		descBackendUp, descBackendWeight, descBackendShare, descMasters, descRefused, descNextHops, descSessionUp, descFlaps, descPaths, descReceived, descUpdates, descUpdatesIn, descKeepalives, descKeptAlive, descNotes, descNotesIn, descBFD} {
		c <- d
	}
}

func (m *metrics) Collect(c chan<- prometheus.Metric) {
	s := m.now.Load()
	if s == nil {
		return
	}
	gauge := func(d *prometheus.Desc, on bool, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, number(on), labels...)
	}
	for st, n := range s.members {
		c <- prometheus.MustNewConstMetric(descMembers, prometheus.GaugeValue, float64(n), st.String())
	}
	for n, bad := range s.failing {
		gauge(descDriver, bad, string(n))
	}
	gauge(descSettled, s.settled)
	gauge(descDrain, s.draining)
	if s.services.Asked && s.services.Known {
		gauge(descKept, s.services.Works)
	}
	gauge(descMachineDrain, s.machine.draining)
	gauge(descManager, s.machine.manager)
	gauge(descWriter, s.machine.writer)
	collectBGP(c, s.peers)
	s.collectBackends(c)
	s.learned.collect(c)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
