// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

// counter is the sum of counters that come and go. A plain sum would fall when a
// node leaves or does not answer, which readers take for a restart, and would
// leap by a month of seconds when one joins. So it grows by what each node has
// grown since it was last seen:
//
//   - the nodes of the first call count in full;
//   - a node that joins later counts from then on;
//   - a node that does not answer is made up for when it does;
//   - a node that has restarted counts from zero.
//
// The zero value is ready. It is not safe for concurrent use.
type counter struct {
	total   float64
	seen    map[string]sample
	started bool
}

// add takes the samples of the nodes that answered and returns the total. Nodes
// outside present are forgotten.
func (c *counter) add(answered map[string]sample, present map[string]struct{}) float64 {
	if c.seen == nil {
		c.seen = make(map[string]sample, len(answered))
	}
	for name, now := range answered {
		before, known := c.seen[name]
		switch {
		case !known && !c.started:
			c.total += now.value
		case !known:
		case now.millis < before.millis:
			continue // an older answer than the last one
		case now.value < before.value:
			c.total += now.value
		default:
			c.total += now.value - before.value
		}
		c.seen[name] = now
	}
	for name := range c.seen {
		if _, ok := present[name]; !ok {
			delete(c.seen, name)
		}
	}
	c.started = c.started || len(answered) > 0
	return c.total
}
