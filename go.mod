module github.com/lockstep-go/lockstep

go 1.26.0
