package exchange

import (
	"fmt"

	"halognn/src/devices/compute"
)

// check returns an error unless the requests that the method group has listed fit together: the
// numbers of ids add up, every id is a row of its owner, and every row has a landing place of its
// own. See package invariant.
func (x *Exchange) check(p *Plan) error {
	numbers, rows := 0, 0
	for r := range x.ranks {
		numbers, rows = numbers+p.askNumbers[r], rows+p.askRows[r]
	}
	room := len(p.received)
	if x.KeepsBought() { // Buy makes the receive buffer later
		room = p.bought.room
	}
	if numbers != len(p.askIDs) || rows*x.unit != room {
		return fmt.Errorf("exchange: the counts of the requests add up to %d words of ids and %d "+
			"units of rows, but %d words are listed, and the receive buffer has %d bytes",
			numbers, rows, len(p.askIDs), room)
	}
	landed := map[compute.RowRef]bool{}
	land := func(at compute.RowRef) error {
		if at.Table() < x.received || at.Table() >= len(p.Rows.Tables) || landed[at] {
			return fmt.Errorf("exchange: a row lands in row %d of table %d, but that is no "+
				"place, or the place of another row", at.Row(), at.Table())
		}
		landed[at] = true
		return nil
	}
	for _, i := range p.rows {
		if err := land(p.Rows.Of[i]); err != nil {
			return err
		}
	}
	for _, at := range p.early {
		if err := land(at); err != nil {
			return err
		}
	}
	if x.sums != nil {
		return nil // the ids then include members of sums, to which the next check does not apply
	}
	next := 0
	for _, r := range x.owners() {
		has := x.offsets[(r+1)*x.perRank] - x.offsets[r*x.perRank]
		for _, id := range p.askIDs[next : next+p.askNumbers[r]] {
			if id < 0 || int64(id) >= has {
				return fmt.Errorf("exchange: row %d is asked of rank %d, but that rank has only "+
					"%d rows", id, r, has)
			}
		}
		next += p.askNumbers[r]
	}
	return nil
}
