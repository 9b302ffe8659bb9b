package main

import (
	"bytes"
	"fmt"
	"math"
)

// The plot has a panel for each guest: calls per second over goroutines, on a
// logarithmic scale, a line for each contender.
const (
	panelWidth, panelHeight = 300, 260
	marginLeft, marginTop   = 56, 40
	marginRight             = 16
	legendWidth             = 190
)

// colours are told apart by people who see few of them; ours comes first.
var colours = []string{"#d55e00", "#e69f00", "#000000", "#0072b2", "#56b4e9", "#009e73", "#7fc8a9", "#cc79a7", "#999999", "#f0e442"}

func (r report) plot() []byte {
	var b bytes.Buffer
	width, height := len(r.guests)*(marginLeft+panelWidth+marginRight)+legendWidth, panelHeight+marginTop+48
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	for i, g := range r.guests {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", i*(marginLeft+panelWidth+marginRight)+marginLeft, marginTop)
		g.panel(&b)
		fmt.Fprintln(&b, `</g>`)
	}
	if len(r.guests) > 0 {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", width-legendWidth+8, marginTop+8)
		for i, name := range r.guests[0].order {
			fmt.Fprintf(&b, `<line x1="0" y1="%d" x2="22" y2="%d" stroke="%s" stroke-width="%g"/><text x="30" y="%d">%s</text>`+"\n",
				i*20, i*20, colours[i%len(colours)], stroke(i), i*20+4, name)
		}
		fmt.Fprintln(&b, `</g>`)
	}
	fmt.Fprintln(&b, `</svg>`)
	return b.Bytes()
}

// stroke draws our line thicker than the others.
func stroke(i int) float64 {
	if i == 0 {
		return 3
	}
	return 1.5
}

func (res guestResult) panel(b *bytes.Buffer) {
	low, high := res.decades()
	y := func(rate float64) float64 {
		return panelHeight * (1 - (math.Log10(rate)-low)/(high-low))
	}
	last := float64(res.counts[len(res.counts)-1])
	x := func(goroutines int) float64 { return panelWidth * (float64(goroutines) - 1) / max(last-1, 1) }
	fmt.Fprintf(b, `<text x="%d" y="-16" font-size="14" font-weight="bold" text-anchor="middle">%s</text>`+"\n", panelWidth/2, res.guest)
	for d := low; d <= high; d++ {
		at := y(math.Pow(10, d))
		fmt.Fprintf(b, `<line x1="0" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="-8" y="%.1f" text-anchor="end">%s</text>`+"\n",
			at, panelWidth, at, at+4, rateLabel(d))
	}
	for _, n := range res.counts {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(n), panelHeight+18, n)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">goroutines (calls/s)</text>`+"\n", panelWidth/2, panelHeight+36)
	for i := len(res.order) - 1; i >= 0; i-- { // ours above the others
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="%g" points="`, colours[i%len(colours)], stroke(i))
		for j, rate := range res.scaling[res.order[i]] {
			fmt.Fprintf(b, "%.1f,%.1f ", x(res.counts[j]), y(rate))
		}
		fmt.Fprintln(b, `"/>`)
	}
}

// decades are the powers of ten around all rates.
func (res guestResult) decades() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, rates := range res.scaling {
		for _, rate := range rates {
			low, high = min(low, math.Floor(math.Log10(rate))), max(high, math.Ceil(math.Log10(rate)))
		}
	}
	return low, max(high, low+1)
}

// rateLabel writes a power of ten.
func rateLabel(exponent float64) string {
	switch {
	case exponent >= 6:
		return fmt.Sprintf("%gM", math.Pow(10, exponent-6))
	case exponent >= 3:
		return fmt.Sprintf("%gk", math.Pow(10, exponent-3))
	}
	return fmt.Sprintf("%g", math.Pow(10, exponent))
}
