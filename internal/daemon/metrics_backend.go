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

func (s *snapshot) collectBackends(c chan<- prometheus.Metric) {
	for i := range s.loadBalancers {
		lb := &s.loadBalancers[i]
		fills := s.balance[lb.Name].Fills
		for family := range fills {
			for _, b := range shares(lb, &fills[family], family, s.health) {
				gauge := func(d *prometheus.Desc, x float64) {
					c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, lb.Name, b.Backend)
				}
				gauge(descBackendUp, number(b.State == "" || b.State == model.HealthUp.String() || b.State == model.HealthDegraded.String()))
				gauge(descBackendWeight, float64(b.Weight))
				gauge(descBackendShare, float64(b.Share)/1000)
			}
		}
	}
}
