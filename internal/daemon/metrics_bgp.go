package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/internal/model"
)

// The metrics of BGP have the names and meanings of those of MetalLB, with lbd's
// prefix.
var (
	peerLabel      = []string{"peer"}
	descSessionUp  = prometheus.NewDesc("lbd_bgp_session_up", "1 while the session with the peer is established.", peerLabel, nil)
	descFlaps      = prometheus.NewDesc("lbd_bgp_session_flaps_total", "Times that the session was lost.", peerLabel, nil)
	descPaths      = prometheus.NewDesc("lbd_bgp_announced_prefixes_total", "Prefixes that are advertised to the peer now.", peerLabel, nil)
	descReceived   = prometheus.NewDesc("lbd_bgp_received_prefixes_total", "Prefixes that the peer sends now; none is used.", peerLabel, nil)
	descUpdates    = prometheus.NewDesc("lbd_bgp_updates_total", "UPDATE messages sent to the peer.", peerLabel, nil)
	descUpdatesIn  = prometheus.NewDesc("lbd_bgp_updates_total_received", "UPDATE messages received from the peer.", peerLabel, nil)
	descKeepalives = prometheus.NewDesc("lbd_bgp_keepalives_sent", "KEEPALIVE messages sent to the peer.", peerLabel, nil)
	descKeptAlive  = prometheus.NewDesc("lbd_bgp_keepalives_received", "KEEPALIVE messages received from the peer.", peerLabel, nil)
	descNotes      = prometheus.NewDesc("lbd_bgp_notifications_sent", "NOTIFICATION messages sent to the peer.", peerLabel, nil)
	descNotesIn    = prometheus.NewDesc("lbd_bgp_notifications_received", "NOTIFICATION messages received from the peer.", peerLabel, nil)
	descBFD        = prometheus.NewDesc("lbd_bfd_session_up", "1 while the BFD session with the peer is up.", peerLabel, nil)
)

// established is PeerReport.State of a session that works.
const established = "Established"

func collectBGP(c chan<- prometheus.Metric, peers []model.PeerReport) {
	for i := range peers {
		p := &peers[i]
		gauge := func(d *prometheus.Desc, x float64) {
			c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, p.Name)
		}
		count := func(d *prometheus.Desc, n uint64) {
			c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), p.Name)
		}
		gauge(descSessionUp, number(p.State == established))
		gauge(descPaths, float64(p.Paths))
		gauge(descReceived, float64(p.Received))
		if p.BFD != "" {
			gauge(descBFD, number(p.BFD == "Up"))
		}
		count(descFlaps, p.Flaps)
		count(descUpdates, p.UpdatesOut)
		count(descUpdatesIn, p.UpdatesIn)
		count(descKeepalives, p.KeepalivesOut)
		count(descKeptAlive, p.KeepalivesIn)
		count(descNotes, p.NotificationsOut)
		count(descNotesIn, p.NotificationsIn)
	}
}
