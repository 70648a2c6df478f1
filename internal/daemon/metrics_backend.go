package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/internal/model"
)

// The gauges of the backends of LoadBalancers, as this node would forward to them.
var (
	backendLabels     = []string{"vip", "backend"}
	descBackendUp     = prometheus.NewDesc("lbd_backend_healthy", "1 if the last health check of the backend passed on this node, or there is none.", backendLabels, nil)
	descBackendWeight = prometheus.NewDesc("lbd_backend_weight", "Weight of the backend.", backendLabels, nil)
	descBackendShare  = prometheus.NewDesc("lbd_backend_share_ratio", "Share of the new connections that the backend gets.", backendLabels, nil)
)

// maxBackends bounds how many backends of LoadBalancers of tenants have gauges, with those of all
// others, which have theirs however many they are.
const maxBackends = 4096

func (s *snapshot) collectBackends(c chan<- prometheus.Metric) {
	room := maxBackends
	for _, ofTenants := range []bool{false, true} {
		for i := range s.loadBalancers {
			lb := &s.loadBalancers[i]
			if model.OfTenant(lb.Name) != ofTenants || ofTenants && len(lb.Servers) > room {
				continue
			}
			room -= len(lb.Servers)
			s.collectBackendsOf(c, lb)
		}
	}
}

func (s *snapshot) collectBackendsOf(c chan<- prometheus.Metric, of *model.LoadBalancer) {
	lb := balancer{LoadBalancer: of, memory: s.balance[of.Name]}
	for family := range lb.memory.Fills {
		for _, b := range shares(&lb, family, s.health, "") {
			if b.Reason == model.ServerRemoved.String() {
				continue
			}
			gauge := func(d *prometheus.Desc, x float64) {
				c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, lb.Name, b.Backend)
			}
			gauge(descBackendUp, number(b.Health == "" || b.Health == model.HealthUp.String() || b.Health == model.HealthDegraded.String()))
			gauge(descBackendWeight, float64(b.Weight))
			gauge(descBackendShare, float64(b.Share)/1000)
		}
	}
}

// The gauges of BGPListeners.
var (
	descMasters  = prometheus.NewDesc("lbd_listener_masters", "Masters whose session with the BGPListener is established.", []string{"listener"}, nil)
	descRefused  = prometheus.NewDesc("lbd_listener_refused_paths", "Paths of masters that lead to no route, of all BGPListeners.", nil, nil)
	descNextHops = prometheus.NewDesc("lbd_route_next_hops", "Masters to which the kernel sends packets for the prefix.", []string{"prefix"}, nil)
)

// listenerSnapshot is what they are made of.
type listenerSnapshot struct {
	listeners []model.BGPListener
	bgp, is   model.Applied // of the drivers of BGP and of routes
	refused   int
}

func newListenerSnapshot(v *model.View, d *model.Desired) listenerSnapshot {
	return listenerSnapshot{v.Listeners, v.Applied[model.SinkBGP], v.Applied[model.SinkRoute], len(d.Refused.Paths) + d.Refused.Untold}
}

func (s *listenerSnapshot) collect(c chan<- prometheus.Metric) {
	if len(s.listeners) == 0 {
		return
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for i := range s.listeners {
		n := 0
		for _, m := range s.bgp.Masters {
			if m.Listener == s.listeners[i].Name && m.State == established {
				n++
			}
		}
		gauge(descMasters, n, s.listeners[i].Name)
	}
	for prefix, r := range s.is.Routes {
		gauge(descNextHops, len(r.NextHops), prefix.String())
	}
	gauge(descRefused, s.refused)
}
