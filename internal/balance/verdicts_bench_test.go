package balance

import (
	"fmt"
	"net/netip"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// BenchmarkVerdicts tells what this node says as the owner of a thousand VIPs of as many LoadBalancers.
func BenchmarkVerdicts(b *testing.B) {
	memory := make(map[string]model.BalanceMemory)
	var vips []model.VIP
	for i := range 1000 {
		vip := model.VIP{Addr: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), Kind: model.KindTenantService}
		m := model.BalanceMemory{Wanted: &model.LoadBalancer{VIPs: []netip.Addr{vip.Addr}}}
		m.Fills[0].Verdict.Servers = uint32(i + 1)
		memory[fmt.Sprint(i)], vips = m, append(vips, vip)
	}
	for b.Loop() {
		all := Verdicts(memory)
		for i := range vips {
			if all[vips[i].Addr].Servers != uint32(i+1) {
				b.Fatal(all[vips[i].Addr])
			}
		}
	}
}
