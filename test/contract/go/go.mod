module berth.example/contract

go 1.21
