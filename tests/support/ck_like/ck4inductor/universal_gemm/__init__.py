"""Where ck4inductor has its instances."""
