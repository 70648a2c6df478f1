package nft

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
)

// elementsPerMessage keeps the one netlink attribute with the elements of a message
// below 64 KiB, what its length of 16 bits can say: the kernel takes what is left of a
// longer one for the whole. The longest element that lbd has takes some 70 bytes.
const elementsPerMessage = 512

// CountFrom is the size of a set from which on it is worth asking the kernel what it has.
const CountFrom = 1000

// AddSet adds a set with its elements to a transaction, however many they are.
func AddSet(c *nftables.Conn, s *nftables.Set, elements []nftables.SetElement) error {
	if err := c.AddSet(s, nil); err != nil {
		return err
	}
	return AddElements(c, s, elements)
}

// AddElements adds elements, however many, to a set that the transaction has or that is
// in the kernel.
func AddElements(c *nftables.Conn, s *nftables.Set, elements []nftables.SetElement) error {
	open := *s
	open.Anonymous = false // no rule has it yet; the library does not know that
	return inParts(elements, func(part []nftables.SetElement) error { return c.SetAddElements(&open, part) })
}

// DeleteElements deletes elements, however many, of a set that is in the kernel.
func DeleteElements(c *nftables.Conn, s *nftables.Set, elements []nftables.SetElement) error {
	return inParts(elements, func(part []nftables.SetElement) error { return c.SetDeleteElements(s, part) })
}

func inParts(elements []nftables.SetElement, do func([]nftables.SetElement) error) error {
	for part := range slices.Chunk(elements, elementsPerMessage) {
		if err := do(part); err != nil {
			return err
		}
	}
	return nil
}

// Verify is an error if a set in the kernel has not as many elements as it should. Of a
// small set nothing is asked: it fits one message, which the kernel takes or refuses.
func (s *Session) Verify(set *nftables.Set, want int) error {
	if want < CountFrom {
		return nil
	}
	return s.Do(func(c *nftables.Conn) error {
		is := 0
		for range countTries {
			elements, err := c.GetSetElements(set)
			if err != nil {
				return err
			}
			keys := make(map[string]bool, len(elements))
			for _, e := range elements {
				keys[string(e.Key)] = true
			}
			if is = len(keys); is == want {
				return nil
			}
		}
		return fmt.Errorf("the kernel has %d elements of %d in set %s", is, want, set.Name)
	})
}

// countTries is how often the kernel is asked: a set that has just grown may be rehashed while
// it is listed, and then an element come twice or not at all.
const countTries = 3
