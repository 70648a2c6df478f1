// Package wake tells a goroutine that there is something to do.
package wake

// Up puts a token into a channel of capacity one, and never blocks: a token that is there
// already covers this one too.
func Up(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
