//go:build bench

package bench

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgsvg" // the format of the files
)

var (
	ourColor   = color.RGBA{R: 0x1f, G: 0x6f, B: 0xb4, A: 0xff}
	otherColor = color.RGBA{R: 0x80, G: 0x80, B: 0x80, A: 0xff}
)

// A bar is a rate in the plot of rates.
type bar struct {
	name      string
	perSecond float64
	ours      bool
}

// A curve is a sorted sample in the plot of latencies.
type curve struct {
	name   string
	sorted sample
}

func newPlot(title string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	return p
}

// plotRates writes a plot of rates, the first one on top. It has dots, not
// bars: the axis is logarithmic and has no zero.
func plotRates(bars []bar, file string) error {
	p := newPlot("Jobs queued in a second (logarithmic)")
	names := make([]string, len(bars))
	for i, b := range bars {
		y := float64(len(bars) - 1 - i)
		names[len(bars)-1-i] = b.name
		at := plotter.XYs{{X: b.perSecond, Y: y}}
		dot, err := plotter.NewScatter(at)
		if err != nil {
			return err
		}
		dot.GlyphStyle = draw.GlyphStyle{Color: otherColor, Radius: vg.Points(4), Shape: draw.CircleGlyph{}}
		if b.ours {
			dot.Color = ourColor
		}
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: at, Labels: []string{fmt.Sprintf("%.0f", b.perSecond)}})
		if err != nil {
			return err
		}
		label.Offset = vg.Point{X: vg.Points(8), Y: -vg.Points(3)}
		p.Add(dot, label)
	}
	p.NominalY(names...)
	p.Y.Tick.Label.Font.Size = vg.Points(9)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.X.Min, p.X.Max = 50, 20000
	p.Y.Min, p.Y.Max = -0.5, float64(len(bars))-0.5
	p.Add(plotter.NewGrid())
	return p.Save(18*vg.Centimeter, 9*vg.Centimeter, file)
}

// plotCurves writes which part of the calls was done within which time.
func plotCurves(curves []curve, file string) error {
	p := newPlot("Submits done within a time")
	p.X.Label.Text, p.Y.Label.Text = "milliseconds", "part of the calls"
	for i, c := range curves {
		points := make(plotter.XYs, 0, 100)
		for k := range 100 { // up to p99
			part := float64(k) / 100
			points = append(points, plotter.XY{X: float64(c.sorted.at(part).Microseconds()) / 1000, Y: part})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = []color.Color{otherColor, ourColor}[i%2], vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(c.name, line)
	}
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, 1
	p.Legend.YOffs = vg.Points(12)
	p.Add(plotter.NewGrid())
	return p.Save(18*vg.Centimeter, 9*vg.Centimeter, file)
}
